// SPDX-License-Identifier: MIT
//
// Holds the server to each of its limits: the status that a client gets, who is refused when a
// budget is spent, and that slow and bad clients keep nobody else out.

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tools/serve/http/http_server.h"
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

// Sends a request and returns the status of its answer.
int status_of(const RunningServer& running, std::string_view request) {
  RawClient client = running.connect();
  client.send(request);
  return client.receive().status;
}

TEST(HttpLimitsTest, SizesOfHeads) {
  HttpLimits limits;
  limits.max_target_bytes = 100;
  limits.max_head_bytes = 2000;
  limits.max_headers = 10;
  RunningServer running(limits);
  const auto target_of = [](std::size_t size) { return "/hello?" + std::string(size - 7, 'q'); };
  EXPECT_EQ(status_of(running, get_request(target_of(100))), 200);
  EXPECT_EQ(status_of(running, get_request(target_of(101))), 414);
  // A line that never ends is refused as soon as it is too long.
  EXPECT_EQ(status_of(running, "GET /" + std::string(101, 'q')), 414);

  const std::size_t least = get_request("/hello", "X: \r\n").size();
  const auto head_of = [&](std::size_t size) {
    return get_request("/hello", "X: " + std::string(size - least, 'x') + "\r\n");
  };
  EXPECT_EQ(status_of(running, head_of(2000)), 200);
  EXPECT_EQ(status_of(running, head_of(2001)), 431);
  EXPECT_EQ(status_of(running, "GET /hello HTTP/1.1\r\nX: " + std::string(5000, 'x')), 431);

  std::string headers;
  for (int i = 0; i < 9; ++i) headers += "X: y\r\n";
  EXPECT_EQ(status_of(running, get_request("/hello", headers)), 200);
  EXPECT_EQ(status_of(running, get_request("/hello", headers + "X: y\r\n")), 431);
  EXPECT_EQ(running.refused(HttpRefusal::kTooLarge), 5u);
}

TEST(HttpLimitsTest, SizesOfBodies) {
  RunningServer running;
  const std::string largest(TestService::kMaxEcho, 'x');
  EXPECT_EQ(status_of(running, post_request("/echo", largest)), 200);
  // The answer reaches a client that is still sending.
  EXPECT_EQ(status_of(running, post_request("/echo", largest + "x")), 413);
  RawClient sending = running.connect();
  EXPECT_TRUE(sending.send(post_request("/echo", std::string(500000, 'x'))));
  EXPECT_EQ(sending.receive().status, 413);
  EXPECT_EQ(status_of(running, post_request("/hello", "x")), 413);
}

// Header limit, then path and key, then length: what a client hears of first.
TEST(HttpLimitsTest, OrderOfChecks) {
  RunningServer running;
  const std::string huge = "Content-Length: 999999999\r\n";
  EXPECT_EQ(status_of(running, "POST /forbidden HTTP/1.1\r\nHost: h\r\n" + huge + "\r\n"), 401);
  EXPECT_EQ(status_of(running, "POST /nowhere HTTP/1.1\r\nHost: h\r\n" + huge + "\r\n"), 404);
  EXPECT_EQ(status_of(running, "POST /echo HTTP/1.1\r\nHost: h\r\n" + huge + "\r\n"), 413);
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  EXPECT_EQ(status_of(running, get_request("/nowhere", chunked)), 404);
  EXPECT_EQ(status_of(running, get_request("/echo", chunked)), 411);
  EXPECT_EQ(status_of(running, get_request("/echo", "Transfer-Encoding: gzip, chunked\r\n")), 501);
  EXPECT_EQ(status_of(running, post_request("/nowhere", "x", "Expect: 100-continue\r\n")), 404);
  EXPECT_EQ(status_of(running, post_request("/echo", "x", "Expect: 100-continue\r\n")), 417);
  EXPECT_EQ(status_of(running, post_request("/echo", "x", "Content-Encoding: gzip\r\n")), 415);
  EXPECT_EQ(status_of(running, post_request("/echo", "x", "Content-Encoding: identity\r\n")), 200);
  EXPECT_EQ(status_of(running, get_request("/hello", "Upgrade: h2c\r\nConnection: Upgrade\r\n")),
            200);
}

TEST(HttpLimitsTest, ARefusedRequestThatIsWholeKeepsTheConnection) {
  RunningServer running;
  RawClient client = running.connect();
  client.send(get_request("/nowhere") + post_request("/forbidden", "some text") +
              get_request("/hello"));
  EXPECT_EQ(client.receive().status, 404);
  EXPECT_EQ(client.receive().status, 401);
  EXPECT_EQ(client.receive().status, 200);
  // With a body on its way it does not.
  client.send("POST /forbidden HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\nsome");
  const ReceivedResponse refused = client.receive();
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.header("connection"), "close");
  EXPECT_TRUE(client.sees_end(5000));
}

TEST(HttpLimitsTest, RequestsOfAConnection) {
  HttpLimits limits;
  limits.max_requests_per_connection = 3;
  RunningServer running(limits);
  RawClient client = running.connect();
  for (int i = 1; i <= 3; ++i) {
    client.send(get_request("/hello"));
    EXPECT_EQ(client.receive().header("connection"), i < 3 ? "" : "close");
  }
  EXPECT_TRUE(client.sees_end(5000));
}

TEST(HttpLimitsTest, TimeOfHeadsAndIdleConnections) {
  HttpLimits limits;
  limits.head_seconds = 0.2;
  limits.idle_seconds = 0.4;
  RunningServer running(limits);
  RawClient idle = running.connect();
  RawClient stopped = running.connect();
  stopped.send("GET /hello HTT");
  EXPECT_EQ(stopped.receive().status, 408);
  EXPECT_TRUE(stopped.sees_end(5000));
  // Bytes that come in time are not enough: the whole head must.
  RawClient slow = running.connect();
  slow.send_slowly(get_request("/hello", "X: " + std::string(2000, 'x')), 5);
  EXPECT_EQ(slow.receive().status, 408);
  EXPECT_EQ(idle.receive_some(1, 5000), "");
  EXPECT_TRUE(idle.sees_end(5000));
  EXPECT_EQ(running.refused(HttpRefusal::kTimeout), 2u);
}

TEST(HttpLimitsTest, RateOfBodies) {
  HttpLimits limits;
  limits.body_seconds = 0.2;
  limits.min_bytes_per_second = 1000;
  RunningServer running(limits);
  const std::string body(1500, 'x');
  const std::string head = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1500\r\n\r\n";
  RawClient stopped = running.connect();
  stopped.send(head + "x");
  EXPECT_EQ(stopped.receive().status, 408);
  RawClient slow = running.connect();
  slow.send(head);
  slow.send_slowly(body, 5);
  EXPECT_EQ(slow.receive().status, 408);
  // Longer than the time, but at the rate.
  RawClient steady = running.connect();
  steady.send(head);
  for (int i = 0; i < 15; ++i) {
    steady.send(std::string(100, 'x'));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(steady.receive().body, body);
}

// A reader of a byte at a time is given up, however long it goes on.
TEST(HttpLimitsTest, RateOfReaders) {
  HttpLimits limits;
  limits.write_seconds = 0.3;
  limits.min_bytes_per_second = 100000;
  RunningServer running(limits);
  RawClient slow(running.address, 2048);
  slow.send(get_request("/hold"));
  const auto held = running.service.held();
  ASSERT_NE(held, nullptr);
  held->start(200, {}, "");
  while (!held->is_full()) held->write(std::string(1000, 'x'));
  EXPECT_TRUE(comes_true([&] {
    (void)slow.receive_some(1, 0);
    return held->is_gone();
  }));
  EXPECT_FALSE(held->is_full());
  EXPECT_EQ(running.refused(HttpRefusal::kSlowReader), 1u);
  EXPECT_EQ(running.server->counters().output_bytes, 0u);
}

TEST(HttpLimitsTest, NewcomersTakeThePlaceOfIdleConnectionsAndSlowHeads) {
  HttpLimits limits;
  limits.head_seconds = 60;  // not what ends them
  limits.max_connections = 4;
  RunningServer running(limits);
  std::vector<RawClient> idle;
  for (std::size_t i = 0; i < 4; ++i) {
    idle.push_back(running.connect());
    ASSERT_TRUE(
        comes_true([&] { return running.server->counters().connections_accepted == i + 1; }));
  }
  EXPECT_EQ(status_of(running, get_request("/hello")), 200);
  EXPECT_TRUE(idle[0].sees_end(5000));

  std::vector<RawClient> slow;
  for (std::size_t i = 0; i < 4; ++i) {
    slow.push_back(running.connect());
    slow.back().send("GET /hello HTTP/1.1\r\n");
    ASSERT_TRUE(comes_true([&] {
      return running.server->counters().head_pool_bytes == std::min<std::size_t>(i + 1, 4) * 1024;
    }));
  }
  EXPECT_EQ(status_of(running, get_request("/hello")), 200);
  EXPECT_EQ(slow[0].receive().status, 408);
  EXPECT_LE(running.server->counters().connections_open, 4u);
}

TEST(HttpLimitsTest, TheReserveAnswersShortRequestsWhenAllAreBusy) {
  HttpLimits limits;
  limits.max_connections = 2;
  limits.reserve_connections = 1;
  RunningServer running(limits);
  std::vector<RawClient> busy;
  for (std::size_t i = 0; i < 2; ++i) {
    busy.push_back(running.connect());
    busy.back().send(get_request("/hold"));
    ASSERT_NE(running.service.held(i + 1), nullptr);
  }
  for (int i = 0; i < 3; ++i) {
    RawClient probe = running.connect();
    probe.send(get_request("/hello"));
    const ReceivedResponse response = probe.receive();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.header("connection"), "close");
  }
  EXPECT_EQ(status_of(running, post_request("/echo", "x")), 503);
  // One in the reserve that says nothing makes room for the next.
  RawClient silent = running.connect();
  EXPECT_EQ(status_of(running, get_request("/hello")), 200);
  EXPECT_TRUE(silent.sees_end(5000));
  // Where the reserve is busy too, the next waits until one has its answer.
  busy.push_back(running.connect());
  busy.back().send(get_request("/hold"));
  ASSERT_NE(running.service.held(3), nullptr);
  RawClient waiting = running.connect();
  waiting.send(get_request("/hello"));
  EXPECT_EQ(waiting.receive_some(1, 100), "");
  running.service.held(2)->respond({200, {}, "done", {}});
  EXPECT_EQ(busy[1].receive().body, "done");
  EXPECT_EQ(waiting.receive().status, 200);
}

TEST(HttpLimitsTest, ASpentPoolOfHeadsRefusesTheSlowest) {
  HttpLimits limits;
  limits.head_seconds = 60;  // not what ends them
  limits.head_pool_bytes = 4096;
  RunningServer running(limits);
  std::vector<RawClient> slow;
  for (std::size_t i = 0; i < 4; ++i) {
    slow.push_back(running.connect());
    slow.back().send("GET /hello HTTP/1.1\r\n");
    ASSERT_TRUE(
        comes_true([&] { return running.server->counters().head_pool_bytes == (i + 1) * 1024; }));
  }
  // A head in one piece needs room only for what the service sees of it.
  EXPECT_EQ(status_of(running, get_request("/hello")), 200);
  EXPECT_EQ(slow[0].receive().status, 408);
  RawClient next = running.connect();
  next.send("GET /hello HTTP/1.1\r\nX: " + std::string(1500, 'x'));
  EXPECT_EQ(slow[1].receive().status, 408);
  next.send("\r\nHost: h\r\n\r\n");
  EXPECT_EQ(next.receive().status, 200);
  EXPECT_LE(running.server->counters().head_pool_bytes, 4096u);
}

// Requests that are being answered hold their heads, and nobody is slow: the next is refused.
TEST(HttpLimitsTest, ThePoolOfHeadsCountsRequestsBeingAnswered) {
  HttpLimits limits;
  limits.head_pool_bytes = 8192;
  RunningServer running(limits);
  std::vector<RawClient> clients;
  int n_refused = 0;
  std::size_t n_held = 0;
  while (n_refused == 0 && clients.size() < 20) {
    clients.push_back(running.connect());
    clients.back().send(get_request("/hold", "X: " + std::string(1000, 'x') + "\r\n"));
    if (comes_true([&] { return running.refused(HttpRefusal::kNoRoom) > 0; }, 50)) {
      EXPECT_EQ(clients.back().receive().status, 503);
      ++n_refused;
    } else {
      ASSERT_NE(running.service.held(++n_held), nullptr);
    }
  }
  EXPECT_EQ(n_refused, 1);
  EXPECT_GE(n_held, 4u);
  running.service.forget_held();
  EXPECT_EQ(status_of(running, get_request("/hello")), 200);
  EXPECT_TRUE(comes_true([&] { return running.server->counters().head_pool_bytes == 0; }));
}

TEST(HttpLimitsTest, ASpentBudgetOfBodiesRefusesTheSlowest) {
  HttpLimits limits;
  limits.body_seconds = 60;  // not what ends it
  limits.max_all_bodies_bytes = 100000;
  RunningServer running(limits);
  const std::string head = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n";
  RawClient slow = running.connect();
  slow.send(head + std::string(50000, 'x'));
  ASSERT_TRUE(comes_true([&] { return running.server->counters().body_bytes >= 50000; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(status_of(running, post_request("/echo", std::string(60000, 'y'))), 200);
  EXPECT_EQ(slow.receive().status, 408);

  // Bodies that the service holds: no room, until it drops them.
  RawClient first = running.connect();
  first.send(post_request("/hold", std::string(60000, 'z')));
  const auto held = running.service.held();
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(status_of(running, post_request("/echo", std::string(60000, 'y'))), 503);
  EXPECT_EQ(held->request().body.size(), 60000u);
  held->drop_body();
  EXPECT_EQ(held->request().body.size(), 0u);
  EXPECT_EQ(status_of(running, post_request("/echo", std::string(60000, 'y'))), 200);
}

TEST(HttpLimitsTest, ASpentBudgetOfOutputClosesTheReaderThatStandsStill) {
  HttpLimits limits;
  limits.max_all_output_bytes = 3 * TestService::kBig;
  RunningServer running(limits);
  std::vector<RawClient> still;
  for (std::size_t i = 0; i < 6; ++i) {
    still.emplace_back(running.address, 4096);
    still.back().send(get_request("/big"));
    ASSERT_TRUE(comes_true([&] { return running.server->counters().responses[200] == i + 1; }));
  }
  EXPECT_TRUE(comes_true([&] { return running.refused(HttpRefusal::kSlowReader) >= 3; }));
  EXPECT_TRUE(comes_true(
      [&] { return running.server->counters().output_bytes <= limits.max_all_output_bytes; }));
  EXPECT_TRUE(still[0].sees_end(5000));
  EXPECT_EQ(still[5].receive().body.size(), TestService::kBig);
}

TEST(HttpLimitsTest, AThousandSlowAndBadClientsKeepNobodyOut) {
  HttpLimits limits;
  limits.max_connections = 1024;
  RunningServer running(limits);
  RawClient streaming = running.connect();
  streaming.send(get_request("/hold"));
  const auto held = running.service.held();
  ASSERT_NE(held, nullptr);
  held->start(200, {}, "");
  std::string expected;
  std::vector<RawClient> clients;
  for (int i = 0; i < 1000; ++i) {
    RawClient client = running.connect();
    switch (i % 5) {
      case 0: break;  // says nothing
      case 1: client.send("GET /hello HTTP/1.1\r\nHost"); break;
      case 2: client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\nx"); break;
      case 3: client.send(get_request("/big")); break;  // and reads nothing
      case 4: client.send("\x16\x03\x01\x02garbage\r\n\r\n"); break;
    }
    clients.push_back(std::move(client));
    held->write(std::to_string(i) + ";");
    expected += std::to_string(i) + ";";
    if (i % 50 == 0) {
      EXPECT_EQ(status_of(running, get_request("/hello")), 200);
    }
  }
  held->finish();
  EXPECT_TRUE(streaming.receive().body == expected);
  const HttpCounters counters = running.server->counters();
  // One more is there while it is queued.
  EXPECT_LE(counters.output_bytes, limits.max_all_output_bytes + TestService::kBig + 1000);
  EXPECT_LE(counters.head_pool_bytes, limits.head_pool_bytes);
  EXPECT_TRUE(comes_true([&] { return running.refused(HttpRefusal::kBadRequest) == 200; }));
}

TEST(HttpLimitsTest, MemoryGrowsWithWhatIsAllowed) {
  const HttpLimits limits;
  const std::size_t base = http_memory_bytes(limits);
  EXPECT_GT(base,
            limits.head_pool_bytes + limits.max_all_bodies_bytes + limits.max_all_output_bytes);
  HttpLimits more = limits;
  more.max_connections += 100;
  // The kernel doubles what a socket's buffers are set to.
  EXPECT_GE(http_memory_bytes(more) - base,
            100 * 2 * (limits.send_buffer_bytes + limits.receive_buffer_bytes));
  more = limits;
  more.max_all_bodies_bytes += 1000;
  EXPECT_GE(http_memory_bytes(more) - base, 1000u);
}

}  // namespace
}  // namespace qsf_tools
