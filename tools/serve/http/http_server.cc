// SPDX-License-Identifier: MIT

#include "tools/serve/http/http_server.h"

// Boost 1.74 uses std::exchange without including this.
#include <utility>

#include <algorithm>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/wait_traits.hpp>
#include <boost/throw_exception.hpp>
#include <cstdio>
#include <cstdlib>

#include "tools/serve/http/http_connection.h"
#include "tools/serve/http/http_listener.h"

// Boost is built without exceptions. What it would throw is that the kernel has no descriptor left
// for the server's own event queue.
namespace boost {

void throw_exception(const std::exception& error) {
  std::fprintf(stderr, "http server: %s\n", error.what());
  std::abort();
}

void throw_exception(const std::exception& error, const source_location&) {
  throw_exception(error);
}

}  // namespace boost

namespace qsf_tools {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Executor = asio::io_context::executor_type;
using Timer = asio::basic_waitable_timer<HttpClock, asio::wait_traits<HttpClock>, Executor>;

// Connections taken in one go, so that newcomers do not keep others waiting.
constexpr int kAcceptsInARow = 64;
// Sizes of one connection: of the heap, measured by the test of 1,000 idle ones, and of the kernel
// (socket, file, entry of the event queue).
constexpr std::size_t kConnectionHeapBytes = 1024;
constexpr std::size_t kConnectionKernelBytes = 4096;
// Of a request being answered: exchange, output, and what hangs on them.
constexpr std::size_t kExchangeBytes = 1024;

// Hands a socket to Asio, which is told any protocol: nobody asks it for addresses.
bool adopt(HttpSocket& socket, SocketHandle handle) {
  error_code error;
  (void)socket.assign(asio::ip::tcp::v4(), static_cast<HttpSocket::native_handle_type>(handle),
                      error);
  return !error;
}

// Takes a socket back from Asio, and ends what waits at it.
void let_go(HttpSocket& socket) {
  error_code ignored;
  if (socket.is_open()) (void)socket.release(ignored);
}

}  // namespace

struct HttpServer::Impl {
  Impl(std::shared_ptr<HttpLink> link, HttpService& service, std::vector<HttpListener> opened)
      : listeners(std::move(opened)),
        hub(service, std::move(link)),
        timer(io.get_executor()),
        events(io.get_executor()) {
    (void)adopt(events, hub.link->wake_signal.socket());
    for (const HttpListener& listener : listeners) {
      (void)adopt(doors.emplace_back(io.get_executor()), listener.socket());
    }
    hub.user = this;
    hub.on_removed = [](void* user) { static_cast<Impl*>(user)->removed(); };
  }

  HttpLink& link() { return *hub.link; }

  void wait_for_events() {
    events.async_wait(HttpSocket::wait_read, [this](const error_code& error) {
      if (error) return;
      link().wake_signal.clear();
      wait_for_events();
      if (wants_stop) return io.stop();
      if (wants_drain && !link().is_draining) begin_drain();
      hub.run_woken();
    });
  }

  void wait_for_connections(std::size_t door) {
    doors[door].async_wait(HttpSocket::wait_read, [this, door](const error_code& error) {
      if (error) return;
      accept_some(door);
      hub.run_woken();
    });
  }

  // Takes what waits at a door. Waits again unless every connection has a request being read or
  // answered, and the reserve is taken too: then until one goes.
  void accept_some(std::size_t door) {
    const HttpLimits& limits = link().limits;
    for (int i = 0; i < kAcceptsInARow; ++i) {
      const bool is_crowded = hub.connections.size() >= limits.max_connections;
      HttpConnection* const leaves = is_crowded ? find_least_needed() : nullptr;
      if (is_crowded && leaves == nullptr &&
          hub.connections.size() >= limits.max_connections + limits.reserve_connections) {
        waits_for_room = true;
        return;
      }
      SocketHandle connection = kNoSocket;
      const Accepted accepted = accept_connection(listeners[door].socket(),
                                                  listeners[door].is_unix(), limits, connection);
      if (accepted == Accepted::kAgain) continue;
      if (accepted == Accepted::kNothing) break;
      if (accepted == Accepted::kRefused) {
        // The next tick tries again.
        link().count_refusal(HttpRefusal::kNoRoom);
        waits_for_room = true;
        return tick();
      }
      if (leaves != nullptr) leaves->evict();
      add(connection, is_crowded && leaves == nullptr);
    }
    wait_for_connections(door);
  }

  // Returns the connection that makes room for a newcomer: one that is closing, that has been idle
  // for longest, or whose head came slowest. Null: there is none.
  HttpConnection* find_least_needed() {
    using State = HttpConnection::State;
    for (const State state : {State::kLingering, State::kIdle, State::kHead}) {
      HttpConnection* oldest = nullptr;
      for (const auto& connection : hub.connections) {
        if (connection->state() != state) continue;
        if (oldest == nullptr || connection->since() < oldest->since()) oldest = connection.get();
      }
      if (oldest != nullptr) return oldest;
    }
    return nullptr;
  }

  void add(SocketHandle handle, bool is_reserve) {
    HttpSocket socket(io.get_executor());
    if (!adopt(socket, handle)) return close_socket(handle);
    error_code error;
    (void)socket.non_blocking(true, error);
    ++link().connections_accepted;
    ++link().connections_open;
    const auto connection = std::make_shared<HttpConnection>(hub, std::move(socket), is_reserve);
    connection->index = hub.connections.size();
    hub.connections.push_back(connection);
    connection->start();
    tick();
  }

  // A connection has gone, so that those who wait outside may come in.
  void removed() {
    if (waits_for_room && !link().is_draining) {
      waits_for_room = false;
      for (std::size_t door = 0; door < doors.size(); ++door) {
        error_code ignored;
        (void)doors[door].cancel(ignored);
        wait_for_connections(door);
      }
    }
    if (link().is_draining && hub.connections.empty()) io.stop();
  }

  // Looks at the time of every connection, again and again while there are any, or some wait.
  void tick() {
    if (is_ticking) return;
    is_ticking = true;
    timer.expires_after(tick_time);
    timer.async_wait([this](const error_code& error) {
      is_ticking = false;
      if (error) return;
      const HttpClock::time_point now = HttpClock::now();
      for (std::size_t i = hub.connections.size(); i-- > 0;) {
        // Closing one moves the last to its place, which has been looked at.
        if (i < hub.connections.size()) hub.connections[i]->check_time(now);
      }
      hub.run_woken();
      if (!hub.connections.empty() || waits_for_room) tick();
      removed();
    });
  }

  void begin_drain() {
    link().is_draining = true;
    for (HttpSocket& door : doors) let_go(door);
    listeners.clear();
    for (std::size_t i = hub.connections.size(); i-- > 0;) {
      if (i < hub.connections.size()) hub.connections[i]->drain();
    }
    removed();
  }

  void run() {
    link().network_thread = std::this_thread::get_id();
    const HttpLimits& limits = link().limits;
    const double shortest =
        std::min({limits.idle_seconds, limits.head_seconds, limits.body_seconds,
                  limits.write_seconds, limits.linger_seconds, limits.keep_alive_seconds});
    tick_time =
        std::chrono::milliseconds(static_cast<int>(std::clamp(shortest * 1000 / 4, 5.0, 250.0)));
    wait_for_events();
    for (std::size_t door = 0; door < doors.size(); ++door) wait_for_connections(door);
    (void)io.run();
    end();
  }

  // Closes everything. Exchanges that the service still holds are gone.
  void end() {
    if (link().is_stopped) return;
    link().is_draining = true;  // no more in removed()
    while (!hub.connections.empty()) hub.connections.back()->close();
    link().is_stopped = true;
    // Those that were woken last hold the link, which holds them.
    for (const auto& output : link().take_woken()) output->notify_late();
    for (HttpSocket& door : doors) let_go(door);
    let_go(events);
    (void)timer.cancel();
    listeners.clear();
    // What was pending ends with an error, and lets go of its connection.
    io.restart();
    (void)io.poll();
  }

  asio::io_context io{1};
  std::vector<HttpListener> listeners;
  std::vector<std::string> names;
  HttpHub hub;
  Timer timer;
  HttpSocket events;
  std::vector<HttpSocket> doors;  // of the listeners
  HttpClock::duration tick_time = {};
  bool is_ticking = false;
  bool waits_for_room = false;
  // Set by signal handlers too.
  std::atomic<bool> wants_drain = false;
  std::atomic<bool> wants_stop = false;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  impl_->end();
}

std::unique_ptr<HttpServer> HttpServer::open(const HttpLimits& limits,
                                             const std::vector<HttpAddress>& addresses,
                                             HttpService& service, std::string& error) {
  std::vector<HttpListener> listeners;
  for (const HttpAddress& address : addresses) {
    if (!open_http_listeners(address, limits, listeners, error)) return nullptr;
  }
  auto link = std::make_shared<HttpLink>(limits);
  if (!link->wake_signal.is_open()) {
    error = "no socket to wake the server by: " + socket_error();
    return nullptr;
  }
  std::vector<std::string> names;
  for (const HttpListener& listener : listeners) names.push_back(listener.name());
  auto impl = std::make_unique<Impl>(std::move(link), service, std::move(listeners));
  impl->names = std::move(names);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

void HttpServer::run() {
  impl_->run();
}

void HttpServer::drain() noexcept {
  impl_->wants_drain = true;
  impl_->link().wake_signal.signal();
}

void HttpServer::stop() noexcept {
  impl_->wants_stop = true;
  impl_->link().wake_signal.signal();
}

std::vector<std::string> HttpServer::addresses() const {
  return impl_->names;
}

HttpCounters HttpServer::counters() const {
  const HttpLink& link = *impl_->hub.link;
  HttpCounters counters;
  counters.connections_open = link.connections_open;
  counters.connections_accepted = link.connections_accepted;
  counters.bytes_received = link.bytes_received;
  counters.bytes_sent = link.bytes_sent;
  counters.head_pool_bytes = link.heads.used();
  counters.body_bytes = link.bodies.used();
  counters.output_bytes = link.output.used();
  counters.peers_gone = link.peers_gone;
  std::copy(link.refused.begin(), link.refused.end(), counters.refused.begin());
  std::copy(link.responses.begin(), link.responses.end(), counters.responses.begin());
  return counters;
}

std::size_t http_memory_bytes(const HttpLimits& limits) {
  const std::size_t n = limits.max_connections + limits.reserve_connections;
  const std::size_t kernel =
      kConnectionKernelBytes + 2 * (limits.send_buffer_bytes + limits.receive_buffer_bytes);
  const std::size_t shared = limits.head_pool_bytes + limits.max_all_bodies_bytes +
                             limits.max_all_output_bytes +
                             std::max(kReadBytes, limits.max_head_bytes);
  // A body that grows is twice there for a moment.
  return n * (kConnectionHeapBytes + kExchangeBytes + kernel) + shared +
         limits.max_all_bodies_bytes;
}

}  // namespace qsf_tools
