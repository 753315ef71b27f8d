// SPDX-License-Identifier: MIT
//
// Talks to a server over sockets: whole and streamed responses, connections that stay, peers that
// leave in every phase, full queues, and the end.

#include "tools/serve/http/http_server.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "tools/serve/http/testing/http_client.h"

namespace qsf_tools {
namespace {

using testing_support::comes_true;
using testing_support::get_request;
using testing_support::post_request;
using testing_support::RawClient;
using testing_support::ReceivedResponse;
using testing_support::RunningServer;
using testing_support::TestService;

// Counts calls of on_change.
struct Changes {
  std::atomic<int> n = 0;
  static void count(void* user) { ++static_cast<Changes*>(user)->n; }
};

TEST(HttpServerTest, AnswersAndKeepsTheConnection) {
  RunningServer running;
  RawClient client = running.connect();
  for (int i = 0; i < 3; ++i) {
    client.send(get_request("/hello?a=b&c"));
    const ReceivedResponse response = client.receive();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "hello");
    EXPECT_EQ(response.header("x-query"), "a=b&c");
    EXPECT_EQ(response.header("connection"), "");
    EXPECT_NE(response.header("date"), "");
  }
  client.send(post_request("/echo", "some text"));
  EXPECT_EQ(client.receive().body, "some text");
  EXPECT_EQ(running.server->counters().connections_accepted, 1u);
  EXPECT_EQ(running.server->counters().responses[200], 4u);
}

TEST(HttpServerTest, BodiesOfEverySizeInPiecesOfEverySize) {
  RunningServer running;
  RawClient client = running.connect();
  for (const std::size_t size : {0u, 1u, 1000u, 4096u, 8191u, 8192u, 8193u, 40000u, 65536u}) {
    std::string body(size, '\0');
    for (std::size_t i = 0; i < size; ++i) body[i] = static_cast<char>(i * 7 % 251);
    const std::string request = post_request("/echo", body);
    for (const std::size_t piece : {request.size(), std::size_t{5000}, request.size() / 3 + 1}) {
      for (std::size_t at = 0; at < request.size(); at += piece) {
        client.send(std::string_view(request).substr(at, piece));
      }
      const ReceivedResponse response = client.receive();
      ASSERT_EQ(response.status, 200) << size << " in " << piece;
      ASSERT_TRUE(response.body == body) << size << " in " << piece;
    }
  }
}

TEST(HttpServerTest, AHeadMayComeByteByByte) {
  RunningServer running;
  RawClient client = running.connect();
  client.send_slowly(post_request("/echo", "xyz"), 0);
  EXPECT_EQ(client.receive().body, "xyz");
  client.send_slowly(get_request("/hello"), 0);
  EXPECT_EQ(client.receive().status, 200);
}

TEST(HttpServerTest, RequestsSentAheadAreAnsweredInOrder) {
  RunningServer running;
  RawClient client = running.connect();
  std::string all = get_request("/hold");
  for (int i = 0; i < 50; ++i) all += post_request("/echo", std::to_string(i));
  client.send(all);
  const auto held = running.service.held();
  ASSERT_NE(held, nullptr);
  held->respond({200, {}, "first", {}});
  EXPECT_EQ(client.receive().body, "first");
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client.receive().body, std::to_string(i));
}

// More than the server reads ahead: the rest waits in the kernel, and is lost by nobody.
TEST(HttpServerTest, MoreIsSentAheadThanIsReadAhead) {
  RunningServer running;
  RawClient client = running.connect();
  client.send(get_request("/hold"));
  const auto held = running.service.held();
  ASSERT_NE(held, nullptr);
  constexpr int kRequests = 1000;
  std::thread sender([&] {
    for (int i = 0; i < kRequests; ++i) client.send(post_request("/echo", std::to_string(i)));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  held->respond({200, {}, "first", {}});
  EXPECT_EQ(client.receive().body, "first");
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(client.receive().body, std::to_string(i));
  sender.join();
}

TEST(HttpServerTest, StaticAndLargeBodies) {
  RunningServer running;
  RawClient client = running.connect();
  client.send(get_request("/page"));
  EXPECT_EQ(client.receive().body, std::string(20000, 'p'));
  client.send(get_request("/big"));
  EXPECT_EQ(client.receive().body.size(), TestService::kBig);
  EXPECT_TRUE(comes_true([&] { return running.server->counters().output_bytes == 0; }));
}

TEST(HttpServerTest, HeadHasTheLengthAndNoBody) {
  RunningServer running;
  RawClient client = running.connect();
  client.send("HEAD /page HTTP/1.1\r\nHost: h\r\n\r\n");
  const ReceivedResponse response = client.receive(/*is_head=*/true);
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.header("content-length"), "20000");
  client.send(get_request("/hello"));
  EXPECT_EQ(client.receive().body, "hello");
}

TEST(HttpServerTest, Http10ClosesUnlessAsked) {
  RunningServer running;
  RawClient closing = running.connect();
  closing.send("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_EQ(closing.receive().header("connection"), "close");
  EXPECT_TRUE(closing.sees_end(5000));
  RawClient staying = running.connect();
  staying.send("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(staying.receive().header("connection"), "keep-alive");
  staying.send("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(staying.receive().body, "hello");
}

TEST(HttpServerTest, StreamsInPieces) {
  RunningServer running;
  RawClient client = running.connect();
  client.send(get_request("/hold"));
  const auto held = running.service.held();
  ASSERT_NE(held, nullptr);
  held->start(200, {{"Content-Type", "text/event-stream"}}, ":\n\n");
  std::string first = client.receive_some(4096, 5000);
  EXPECT_NE(first.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  held->write("one");
  EXPECT_EQ(client.receive_some(4096, 5000), "3\r\none\r\n");
  held->write("");
  held->write("two");
  held->finish();
  std::string rest;
  while (rest.find("0\r\n\r\n") == std::string::npos) {
    const std::string bytes = client.receive_some(4096, 5000);
    ASSERT_FALSE(bytes.empty());
    rest += bytes;
  }
  EXPECT_EQ(rest, "3\r\ntwo\r\n0\r\n\r\n");
  client.send(get_request("/hello"));
  EXPECT_EQ(client.receive().body, "hello");
}

TEST(HttpServerTest, StreamsToHttp10UntilTheEnd) {
  RunningServer running;
  RawClient client = running.connect();
  client.send("GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto held = running.service.held();
  ASSERT_NE(held, nullptr);
  held->start(200, {}, "");
  held->write("one");
  held->write("two");
  held->finish();
  const ReceivedResponse response = client.receive();
  EXPECT_EQ(response.header("transfer-encoding"), "");
  EXPECT_EQ(response.header("connection"), "close");
  EXPECT_EQ(response.body, "onetwo");
}

TEST(HttpServerTest, AnIncompleteStreamEndsWithoutTheLastChunk) {
  RunningServer running;
  RawClient client = running.connect();
  client.send(get_request("/hold"));
  const auto held = running.service.held();
  ASSERT_NE(held, nullptr);
  held->start(200, {}, "");
  held->write("one");
  held->finish(/*complete=*/false);
  const ReceivedResponse response = client.receive();
  EXPECT_EQ(response.body, "one");
  EXPECT_FALSE(response.is_complete);
}

TEST(HttpServerTest, SilenceIsFilledWithComments) {
  HttpLimits limits;
  limits.keep_alive_seconds = 0.05;
  RunningServer running(limits);
  RawClient client = running.connect();
  client.send(get_request("/hold"));
  const auto held = running.service.held();
  ASSERT_NE(held, nullptr);
  held->start(200, {}, ":\n\n");
  EXPECT_NE(client.receive_some(4096, 5000).find("\r\n\r\n"), std::string::npos);
  EXPECT_EQ(client.receive_some(8, 5000), "3\r\n:\n\n\r\n");
  EXPECT_EQ(client.receive_some(8, 5000), "3\r\n:\n\n\r\n");
  held->write("text");
  held->finish();
  std::string rest;
  while (rest.find("0\r\n\r\n") == std::string::npos) {
    const std::string bytes = client.receive_some(4096, 5000);
    ASSERT_FALSE(bytes.empty());
    rest += bytes;
  }
  EXPECT_NE(rest.find("4\r\ntext\r\n0\r\n\r\n"), std::string::npos) << rest;
}

TEST(HttpServerTest, AForgottenRequestIsAnswered) {
  RunningServer running;
  RawClient client = running.connect();
  client.send(get_request("/forget"));
  EXPECT_EQ(client.receive().status, 500);
  // From another thread, later.
  client.send(get_request("/hold"));
  ASSERT_NE(running.service.held(), nullptr);
  running.service.forget_held();
  EXPECT_EQ(client.receive().status, 500);
  client.send(get_request("/hold"));
  running.service.held()->start(200, {}, "");
  running.service.forget_held();
  EXPECT_FALSE(client.receive().is_complete);
  EXPECT_TRUE(client.sees_end(5000));
}

TEST(HttpServerTest, HeadersCannotBeInjected) {
  RunningServer running;
  RawClient client = running.connect();
  client.send(get_request("/hold"));
  const auto held = running.service.held();
  ASSERT_NE(held, nullptr);
  held->respond({200, {{"X-A", "b\r\nX-C: d"}, {"Content-Length", "99"}}, "text", {}});
  const ReceivedResponse response = client.receive();
  EXPECT_EQ(response.header("x-a"), "b  X-C: d");
  EXPECT_EQ(response.header("content-length"), "4");
}

TEST(HttpServerTest, APeerThatLeavesIsNoticedWhileItsAnswerIsComputed) {
  RunningServer running;
  for (int how = 0; how < 4; ++how) {
    RawClient client = running.connect();
    client.send(get_request("/hold"));
    if (how == 3) client.send(get_request("/hello"));
    const auto held = running.service.held();
    ASSERT_NE(held, nullptr);
    Changes changes;
    held->set_on_change(Changes::count, &changes);
    EXPECT_FALSE(held->is_gone());
    if (how == 1) {
      client.reset();
    } else if (how == 2) {
      client.end_sending();
    } else {
      client.close();
    }
    EXPECT_TRUE(comes_true([&] { return held->is_gone() && changes.n == 1; })) << how;
    held->respond({200, {}, "too late", {}});
    // One that asks later hears of it too.
    Changes late;
    held->set_on_change(Changes::count, &late);
    EXPECT_TRUE(comes_true([&] { return late.n == 1; })) << how;
    held->set_on_change(nullptr, nullptr);
    running.service.forget_held();
  }
  EXPECT_EQ(running.server->counters().peers_gone, 4u);
}

TEST(HttpServerTest, APeerThatLeavesIsNoticedInEveryPhase) {
  RunningServer running;
  const std::string request = post_request("/hold", std::string(3000, 'x'));
  for (const std::size_t sent :
       {std::size_t{0}, std::size_t{5}, std::size_t{60}, request.size() - 1}) {
    RawClient client = running.connect();
    client.send(std::string_view(request).substr(0, sent));
    ASSERT_TRUE(comes_true([&] { return running.server->counters().connections_open == 1; }));
    client.close();
    EXPECT_TRUE(comes_true([&] { return running.server->counters().connections_open == 0; }))
        << sent;
  }
  {
    RawClient client = running.connect();  // in the middle of a stream
    client.send(request);
    const auto held = running.service.held();
    ASSERT_NE(held, nullptr);
    held->start(200, {}, "");
    held->write("one");
    EXPECT_FALSE(client.receive_some(4096, 5000).empty());
    client.close();
    EXPECT_TRUE(comes_true([&] { return held->is_gone(); }));
    running.service.forget_held();
  }
  EXPECT_TRUE(comes_true([&] {
    const HttpCounters counters = running.server->counters();
    return counters.connections_open == 0 && counters.body_bytes == 0 &&
           counters.head_pool_bytes == 0 && counters.output_bytes == 0;
  }));
}

// As `nc -N` does: the request, then the end, and reads the answer.
TEST(HttpServerTest, AnAnswerThatIsReadyReachesAPeerThatSendsNoMore) {
  RunningServer running;
  RawClient client = running.connect();
  client.send(get_request("/big"));
  client.end_sending();
  EXPECT_EQ(client.receive().body.size(), TestService::kBig);
  EXPECT_TRUE(client.sees_end(5000));
}

TEST(HttpServerTest, AFullQueueIsToldAndDrains) {
  RunningServer running;
  RawClient client(running.address, 4096);
  client.send(get_request("/hold"));
  const auto held = running.service.held();
  ASSERT_NE(held, nullptr);
  Changes changes;
  held->set_on_change(Changes::count, &changes);
  held->start(200, {}, "");
  std::string sent;
  for (int i = 0; !held->is_full(); ++i) {
    ASSERT_LT(i, 100000);
    const std::string piece = "piece " + std::to_string(i) + ";";
    held->write(piece);
    sent += piece;
  }
  EXPECT_GE(running.server->counters().output_bytes, HttpLimits().max_output_bytes);
  EXPECT_EQ(changes.n, 0);
  std::thread writer([&] {
    EXPECT_TRUE(comes_true([&] { return changes.n == 1; }));
    EXPECT_FALSE(held->is_full());
    EXPECT_FALSE(held->is_gone());
    held->write("end");
    held->finish();
  });
  const ReceivedResponse response = client.receive();
  writer.join();
  EXPECT_TRUE(response.is_complete);
  EXPECT_TRUE(response.body == sent + "end");
  EXPECT_EQ(changes.n, 1);
}

TEST(HttpServerTest, ManyThreadsWriteToManyStreams) {
  RunningServer running;
  constexpr int kClients = 16;
  constexpr int kPieces = 500;
  std::vector<std::thread> threads;
  for (int c = 0; c < kClients; ++c) {
    threads.emplace_back([&running] {
      RawClient client = running.connect();
      client.send(get_request("/hold"));
      const ReceivedResponse response = client.receive();
      EXPECT_TRUE(response.is_complete);
      std::string expected;
      for (int i = 0; i < kPieces; ++i) expected += std::to_string(i) + ",";
      EXPECT_TRUE(response.body == expected);
    });
  }
  for (int c = 0; c < kClients; ++c) {
    const auto held = running.service.held(static_cast<std::size_t>(c) + 1);
    ASSERT_NE(held, nullptr);
    threads.emplace_back([held] {
      held->start(200, {}, "");
      for (int i = 0; i < kPieces; ++i) held->write(std::to_string(i) + ",");
      held->finish();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HttpServerTest, AThousandIdleConnectionsTakeLittleWhileOneStreams) {
  RunningServer running;
  RawClient client = running.connect();
  client.send(get_request("/hold"));
  const auto held = running.service.held();
  ASSERT_NE(held, nullptr);
  held->start(200, {}, "");
  constexpr std::size_t kIdle = 1000;
  std::vector<RawClient> idle;
  idle.reserve(kIdle);
  const auto heap_bytes = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const std::size_t before = heap_bytes();
  while (idle.size() < kIdle) {
    idle.push_back(running.connect());
    if (idle.size() % 2 == 0) continue;  // one in two has had an answer
    idle.back().send(get_request("/hello"));
    ASSERT_EQ(idle.back().receive().status, 200);
  }
  ASSERT_TRUE(comes_true([&] { return running.server->counters().connections_open == kIdle + 1; }));
  const std::size_t after = heap_bytes();
  const std::size_t each = (after - before) / kIdle;
  RecordProperty("heap_bytes_a_connection", static_cast<int>(each));
  std::printf("an idle connection takes %zu bytes of heap\n", each);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(each, 1024u);
#endif
  held->write("still here");
  held->finish();
  EXPECT_EQ(client.receive().body, "still here");
}

TEST(HttpServerTest, ListensAtAUnixSocket) {
  const std::string path = testing::TempDir() + "qsf-http-" + std::to_string(getpid()) + ".sock";
  HttpAddress address;
  address.unix_path = path;
  address.unix_mode = 0660;
  {
    RunningServer running({}, address);
    ASSERT_NE(running.server, nullptr) << running.error;
    EXPECT_EQ(running.address, "unix:" + path);
    struct stat made = {};
    ASSERT_EQ(stat(path.c_str(), &made), 0);
    EXPECT_EQ(made.st_mode & 0777u, 0660u);
    RawClient client = running.connect();
    client.send(post_request("/echo", std::string(50000, 'u')));
    EXPECT_EQ(client.receive().body.size(), 50000u);
    // A second server does not take it away, nor remove it.
    const RunningServer second({}, address);
    EXPECT_EQ(second.server, nullptr);
    EXPECT_NE(second.error.find("another program listens"), std::string::npos) << second.error;
    client.send(get_request("/hello"));
    EXPECT_EQ(client.receive().body, "hello");
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0) << "the socket is left behind";
  // What a killed server leaves behind does not stop the next.
  {
    const std::string stale = path + ".stale";
    HttpAddress first;
    first.unix_path = stale;
    {
      RunningServer running({}, first);
      ASSERT_EQ(link(stale.c_str(), path.c_str()), 0);
    }
    ASSERT_EQ(access(path.c_str(), F_OK), 0);
    RunningServer running({}, address);
    EXPECT_NE(running.server, nullptr) << running.error;
  }
  EXPECT_EQ(mkdir(path.c_str(), 0700), 0);
  const RunningServer blocked({}, address);
  EXPECT_EQ(blocked.server, nullptr);
  rmdir(path.c_str());
}

TEST(HttpServerTest, ListensAtIPv6AndRefusesWhatIsNoAddress) {
  TestService service;
  std::string error;
  EXPECT_EQ(HttpServer::open({}, {{"example.org", 0, "", 0600}}, service, error), nullptr);
  EXPECT_NE(error.find("example.org: not an address"), std::string::npos) << error;
  const auto first = HttpServer::open({}, {{"127.0.0.1", 0, "", 0600}}, service, error);
  ASSERT_NE(first, nullptr);
  const std::string name = first->addresses().front();
  const auto port = static_cast<std::uint16_t>(std::stoi(name.substr(name.rfind(':') + 1)));
  EXPECT_EQ(HttpServer::open({}, {{"127.0.0.1", port, "", 0600}}, service, error), nullptr);
  EXPECT_NE(error.find("in use"), std::string::npos) << error;
  HttpAddress v6;
  v6.host = "::1";
  RunningServer running({}, v6);
  if (running.server == nullptr) GTEST_SKIP() << "this machine has no IPv6: " << running.error;
  RawClient client = running.connect();
  client.send(get_request("/hello"));
  EXPECT_EQ(client.receive().status, 200);
}

TEST(HttpServerTest, DrainFinishesWhatRunsAndTakesNoMore) {
  TestService service;
  std::string error;
  const auto server = HttpServer::open({}, {HttpAddress()}, service, error);
  ASSERT_NE(server, nullptr) << error;
  const std::string address = server->addresses().front();
  std::thread thread([&] { server->run(); });
  RawClient idle(address);
  RawClient busy(address);
  busy.send(get_request("/hold"));
  const auto held = service.held();
  ASSERT_NE(held, nullptr);
  ASSERT_TRUE(comes_true([&] { return server->counters().connections_open == 2; }));
  server->drain();
  EXPECT_TRUE(idle.sees_end(5000));
  EXPECT_TRUE(comes_true([&] { return !RawClient(address).is_connected(); }));
  EXPECT_FALSE(held->is_gone());
  held->start(200, {}, "");
  held->write("finished");
  held->finish();
  const ReceivedResponse response = busy.receive();
  EXPECT_EQ(response.body, "finished");
  EXPECT_EQ(response.header("connection"), "close");
  busy.close();
  thread.join();
}

TEST(HttpServerTest, StopLosesWhatRuns) {
  std::shared_ptr<HttpExchange> held;
  Changes changes;
  {
    RunningServer running;
    RawClient client = running.connect();
    client.send(get_request("/hold"));
    held = running.service.held();
    ASSERT_NE(held, nullptr);
    running.service.forget_held();
    held->set_on_change(Changes::count, &changes);
    held->start(200, {}, "");
  }
  // The exchange outlives the server.
  EXPECT_TRUE(held->is_gone());
  EXPECT_EQ(changes.n, 1);
  held->write("nobody reads this");
  held->finish();
  EXPECT_EQ(held->request().path, "/hold");
}

}  // namespace
}  // namespace qsf_tools
