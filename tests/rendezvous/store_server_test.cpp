#include "rendezvous/store/server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/store_requests.hpp"

using namespace mgpu::rendezvous::store;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using mgpu::rendezvous::UniqueFd;
namespace request = mgpu::tests::request;

namespace {

bool readable(int fd, std::chrono::milliseconds limit = 0ms) {
  pollfd wanted{fd, POLLIN, 0};
  return ::poll(&wanted, 1, static_cast<int>(limit.count())) > 0;
}

// Polls the server until the condition holds; false if it does not within 20 s.
template <class Condition>
bool serve_until(StoreServer& server, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    if (readable(server.fd(), 10ms)) server.serve_ready();
  }
  return true;
}

// A peer that sends arbitrary bytes.
class Peer {
 public:
  explicit Peer(const StoreServer& server, int receive_buffer = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0)
      ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(server.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
  }

  // Sends as much as the socket accepts now.
  std::size_t send(std::string_view bytes) {
    const auto sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return sent < 0 ? 0 : static_cast<std::size_t>(sent);
  }

  const std::string& received() {
    char buffer[65536];
    ssize_t got = 0;
    while ((got = ::recv(socket_.get(), buffer, sizeof buffer, 0)) > 0)
      received_.append(buffer, static_cast<std::size_t>(got));
    ended_ = ended_ || got == 0 || (errno != EAGAIN && errno != EINTR);
    return received_;
  }
  bool ended() { return received(), ended_; }

 private:
  UniqueFd socket_;
  std::string received_;
  bool ended_ = false;
};

bool answers(StoreServer& server, Peer& peer, const std::string& bytes, const std::string& reply) {
  const auto before = peer.received().size();
  peer.send(bytes);
  return serve_until(server, [&] { return peer.received().size() >= before + reply.size(); }) &&
         peer.received().substr(before) == reply;
}

bool completes_handshake(StoreServer& server, Peer& peer) {
  return answers(server, peer, request::validate() + request::ping(1),
                 request::number<std::uint32_t>(1));
}

bool is_rejected(StoreServer& server, const std::string& bytes) {
  Peer peer(server);
  peer.send(bytes);
  return serve_until(server, [&] { return peer.ended(); });
}

// Address space, which includes memory that is allocated but never touched.
std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t limit) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit now = before_;
    now.rlim_cur = std::min(limit, now.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &now);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

rlim_t next_descriptor() {
  return static_cast<rlim_t>(UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)).get());
}

}  // namespace

TEST_CASE("a port in use is named in the error", "[store][server]") {
  StoreServer first({});
  const auto port = std::to_string(first.port());
  CHECK_THROWS_WITH(StoreServer({.port = first.port()}),
                    Contains("cannot listen on 127.0.0.1:" + port + ": Address already in use; "));
  CHECK_THROWS_WITH(StoreServer({.port = 65536}), Contains("port 65536"));
}

TEST_CASE("a store with network reach accepts connections to any address", "[store][server]") {
  StoreServer server({.reach = ServerOptions::Reach::network});
  Peer peer(server);  // over IPv4, the harder case for a socket on [::]
  CHECK(completes_handshake(server, peer));
}

TEST_CASE("an idle store's descriptors are not inherited", "[store][server]") {
  StoreServer server({});
  CHECK((::fcntl(server.fd(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK_FALSE(readable(server.fd()));  // without work the event loop is not woken
}

TEST_CASE("connections with invalid first bytes are rejected, and others are served",
          "[store][server]") {
  StoreServer server({});
  const auto first = GENERATE(as<std::string>(), "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01",
                              "SSH-2.0-scan\r\n", request::validate(1), request::ping(1),
                              request::set("/k", "v"), std::string(5, '\xff'));
  CHECK(is_rejected(server, first));
  CHECK(server.statistics().rejected == 1);
  CHECK(server.statistics().keys == 0);
  Peer peer(server);
  CHECK(completes_handshake(server, peer));
}

TEST_CASE("a request above the limits closes the connection and allocates no memory",
          "[store][server]") {
  StoreServer server({});
  const auto set = request::opcode(Opcode::set);
  CHECK(is_rejected(server, request::validate() + set + request::number(8ULL << 30)));
  CHECK(is_rejected(
      server, request::validate() + set + request::string("/k") + request::number(8ULL << 30)));
  CHECK(is_rejected(server, request::validate() + "\x13"));

  const auto before = address_space();
  std::vector<Peer> liars;
  for (int i = 0; i < 100; ++i) {
    liars.emplace_back(server);
    REQUIRE(completes_handshake(server, liars.back()));
    liars.back().send(set + request::string("/k") + request::number(kMaxValueBytes) + "few");
  }
  REQUIRE(serve_until(server, [&] { return !readable(server.fd()); }));
  CHECK(address_space() < before + (100 << 20));  // 800 MiB were announced
}

TEST_CASE("a request that arrives byte by byte is answered", "[store][server]") {
  StoreServer server({});
  Peer peer(server);
  for (const char byte : request::validate() + request::set("/k", "v") + request::get("/k")) {
    peer.send({&byte, 1});
    REQUIRE(serve_until(server, [&] { return !readable(server.fd()); }));
  }
  CHECK(serve_until(server, [&] { return peer.received() == request::string("v"); }));
}

TEST_CASE("a client that dies while it waits has no effect on others", "[store][server]") {
  StoreServer server({});
  Peer living(server);
  REQUIRE(completes_handshake(server, living));
  {
    Peer waiter(server), at_barrier(server), half_way(server);
    for (Peer* peer : {&waiter, &at_barrier, &half_way})
      REQUIRE(completes_handshake(server, *peer));
    waiter.send(request::wait({"/k"}));
    at_barrier.send(request::barrier("/b", 3));
    half_way.send(request::set("/half", "value").substr(0, 12));
    REQUIRE(answers(server, living, request::ping(2), request::number<std::uint32_t>(2)));
  }
  REQUIRE(serve_until(server, [&] { return server.statistics().connections == 1; }));
  living.send(request::set("/k", "v"));
  CHECK(answers(server, living, request::get("/k"), request::string("v")));
  CHECK(answers(server, living, request::get("/half"), request::string("")));
  Peer second(server);
  REQUIRE(completes_handshake(server, second));
  second.send(request::barrier("/b", 3));
  CHECK(answers(server, living, request::barrier("/b", 3), request::kStop));
  CHECK(serve_until(server, [&] { return second.received().ends_with(request::kStop); }));
}

TEST_CASE("nothing is read from a client that does not read its replies", "[store][server]") {
  StoreServer server({});
  Peer greedy(server, 4096), other(server);
  REQUIRE(completes_handshake(server, greedy));
  REQUIRE(completes_handshake(server, other));
  const std::string value(1 << 20, 'x');
  const auto reply = request::string(value);
  const auto request = request::set("/k", value);
  for (std::size_t at = 0; at < request.size();) {
    at += other.send(std::string_view(request).substr(at));
    server.serve_ready();
  }
  REQUIRE(answers(server, other, request::ping(2), request::number<std::uint32_t>(2)));
  std::string gets;
  for (int i = 0; i < 100; ++i) gets += request::get("/k");
  const auto before = address_space();
  REQUIRE(greedy.send(gets) == gets.size());
  REQUIRE(serve_until(server, [&] { return !readable(server.fd()); }));
  CHECK(server.statistics().unsent <= 2 * reply.size());
  CHECK(address_space() < before + 20 * reply.size());  // of the 100 that it requests
  CHECK(answers(server, other, request::ping(3), request::number<std::uint32_t>(3)));

  SECTION("and no reply is lost when it reads them") {
    const auto wanted = sizeof(std::uint32_t) + 100 * reply.size();
    REQUIRE(serve_until(server, [&] { return greedy.received().size() >= wanted; }));
    CHECK(greedy.received().size() == wanted);
    CHECK(greedy.received().ends_with(reply));
    CHECK(server.statistics().unsent == 0);
    CHECK(answers(server, greedy, request::ping(4), request::number<std::uint32_t>(4)));
  }
}

TEST_CASE("connections that never send VALIDATE are closed", "[store][server]") {
  const DescriptorLimit plenty(4096);
  StoreServer server({.validate_timeout = 2000ms, .crowd_size = 100});
  Peer member(server);
  REQUIRE(completes_handshake(server, member));
  std::vector<Peer> idle;
  for (int i = 0; i < 1000; ++i) {
    idle.emplace_back(server);
    if (i % 100 == 0) idle.back().send(request::validate().substr(0, 4));  // an incomplete request
    server.serve_ready();
  }
  Peer late(server);
  CHECK(completes_handshake(server, late));
  // First the excess connections are closed, then the rest; only the store's own timer triggers it.
  CHECK(serve_until(server, [&] { return server.statistics().unvalidated <= 100; }));
  CHECK(serve_until(server, [&] { return server.statistics().unvalidated == 0; }));
  CHECK(server.statistics().connections == 2);
  CHECK(server.statistics().rejected == 1000);
  CHECK(answers(server, member, request::ping(5), request::number<std::uint32_t>(5)));
}

TEST_CASE("without free descriptors the store stops accepting and still serves its clients",
          "[store][server]") {
  StoreServer server({});
  Peer member(server);
  REQUIRE(completes_handshake(server, member));
  std::vector<Peer> line;
  for (int i = 0; i < 20; ++i) line.emplace_back(server);

  SECTION("a new connection replaces one without VALIDATE") {
    const DescriptorLimit few(next_descriptor() + 5);
    REQUIRE(serve_until(server, [&] { return !readable(server.fd()); }));
    CHECK(server.statistics().connections == 6);
    CHECK(server.statistics().rejected == 15);
    CHECK(completes_handshake(server, line.back()));
  }
  SECTION("no client is closed for a new connection, which is rejected") {
    const DescriptorLimit none(next_descriptor());
    REQUIRE(serve_until(server, [&] { return !readable(server.fd()); }));
    CHECK(server.statistics().connections == 1);
    CHECK(server.statistics().rejected == 20);
    CHECK(line.back().ended());
  }
  CHECK(answers(server, member, request::ping(6), request::number<std::uint32_t>(6)));
  line.clear();
  Peer after(server);
  CHECK(completes_handshake(server, after));
}

TEST_CASE("a peer that is not admitted is closed without reading", "[store][server]") {
  bool open = true;
  StoreServer server(
      {.admit = [&](int, const sockaddr& peer) { return open && peer.sa_family == AF_INET; }});
  Peer welcome(server);
  CHECK(completes_handshake(server, welcome));
  open = false;
  CHECK(is_rejected(server, request::validate()));
  CHECK(server.statistics().connections == 1);
}

TEST_CASE("a reset also closes connections that are not accepted yet", "[store][server]") {
  StoreServer server({});
  Peer member(server);
  REQUIRE(completes_handshake(server, member));
  member.send(request::set("/k", "v") + request::wait({"/never"}));
  REQUIRE(serve_until(server, [&] { return server.statistics().keys == 1; }));
  Peer in_line(server);
  in_line.send(request::validate() + request::set("/stale", ""));
  server.reset();
  CHECK(member.ended());
  CHECK(in_line.ended());
  CHECK(server.statistics().connections == 0);
  CHECK(server.statistics().keys == 0);

  Peer fresh(server);
  REQUIRE(completes_handshake(server, fresh));
  CHECK(answers(server, fresh, request::set("/never", "") + request::opcode(Opcode::num_keys),
                request::number<std::int64_t>(1)));
}

TEST_CASE("a forked child's descriptors keep no connection open", "[store][server][fork]") {
  StoreServer server({});
  Peer member(server);
  REQUIRE(completes_handshake(server, member));
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  server.reset();
  CHECK(member.ended());
  member.send(request::ping(1));
  CHECK_FALSE(readable(server.fd(), 20ms));  // nor does the old epoll entry wake the event loop
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("one poll does a bounded amount of work", "[store][server]") {
  StoreServer server({});
  Peer peer(server);
  REQUIRE(completes_handshake(server, peer));
  std::string flood;
  while (flood.size() < (1 << 20)) flood += request::ping(1);
  std::size_t sent = 0;
  int polls = 0;
  REQUIRE(serve_until(server, [&] {
    sent += peer.send(std::string_view(flood).substr(sent));
    peer.received();
    ++polls;
    return peer.received().size() == 4 + flood.size() / 5 * 4;
  }));
  CHECK(polls > 4);
}

// --- Other protocols on the same port

TEST_CASE("a connection of another protocol is handed over with the bytes it sent",
          "[store][server]") {
  std::vector<std::pair<UniqueFd, std::string>> handed_over;
  StoreServer server({.other_protocol = [&](UniqueFd socket, std::string_view bytes) {
    handed_over.emplace_back(std::move(socket), bytes);
  }});
  Peer agent(server), client(server);
  agent.send("MGPU\x01 and more");
  REQUIRE(serve_until(server, [&] { return !handed_over.empty(); }));
  CHECK(handed_over[0].second == "MGPU\x01 and more");
  CHECK(server.statistics().connections <= 1);
  CHECK(completes_handshake(server, client));
  CHECK(server.statistics().rejected == 0);

  SECTION("and the store neither reads it nor closes it in a reset") {
    agent.send("\0later");
    server.serve_ready();
    server.reset();
    REQUIRE(serve_until(server, [&] { return client.ended(); }));
    CHECK(::send(handed_over[0].first.get(), "hello", 5, MSG_NOSIGNAL) == 5);
    REQUIRE(serve_until(server, [&] { return agent.received() == "hello"; }));
    CHECK_FALSE(agent.ended());
  }
  SECTION("and a silent one has the usual time limit") {
    Peer silent(server);
    REQUIRE(serve_until(server, [&] { return server.statistics().unvalidated == 1; }));
    CHECK(handed_over.size() == 1);
  }
  SECTION("but not after it has started as a store client") {
    client.send("MGPU");
    REQUIRE(serve_until(server, [&] { return client.ended(); }));
    CHECK(handed_over.size() == 1);
    CHECK(server.statistics().rejected == 1);
  }
}

TEST_CASE("strangers do not displace idle clients from a shared port", "[store][server]") {
  int handed_over = 0;
  StoreServer server({.max_connections = 1,
                      .idle_timeout = 0ms,
                      .other_protocol = [&](UniqueFd, std::string_view) { ++handed_over; }});
  Peer client(server);
  REQUIRE(completes_handshake(server, client));
  Peer stranger(server);
  REQUIRE(serve_until(server, [&] { return stranger.ended(); }));
  CHECK_FALSE(client.ended());
  CHECK(handed_over == 0);
}

TEST_CASE("a silent connection to a shared port is closed in time", "[store][server]") {
  int handed_over = 0;
  StoreServer server({.validate_timeout = 50ms,
                      .other_protocol = [&](UniqueFd, std::string_view) { ++handed_over; }});
  Peer silent(server);
  REQUIRE(serve_until(server, [&] { return silent.ended(); }));
  CHECK(handed_over == 0);
}

TEST_CASE("on a shared port a client is admitted when it sends its first byte", "[store][server]") {
  bool open = false;
  int handed_over = 0;
  StoreServer server({.admit = [&](int, const sockaddr&) { return open; },
                      .other_protocol = [&](UniqueFd, std::string_view) { ++handed_over; }});
  Peer early(server), agent(server);
  agent.send("M");  // agents need no admission
  REQUIRE(serve_until(server, [&] { return handed_over == 1; }));
  REQUIRE(serve_until(server, [&] { return server.statistics().connections == 1; }));

  SECTION("and rejected if it is not admitted") {
    early.send(request::validate() + request::set("key", "value"));
    REQUIRE(serve_until(server, [&] { return early.ended(); }));
    CHECK(server.statistics().rejected == 1);
    CHECK(server.statistics().keys == 0);
    CHECK(early.received().empty());
  }
  SECTION("and served if it is admitted by then") {
    open = true;
    CHECK(completes_handshake(server, early));
    open = false;  // an admitted client stays
    CHECK(answers(server, early, request::ping(2), request::number<std::uint32_t>(2)));
  }
}
