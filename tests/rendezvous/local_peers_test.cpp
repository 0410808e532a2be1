#include "rendezvous/store/local_peers.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;
using store::LocalPeers;

namespace {

constexpr uid_t kOther = 65534;

// A listener that accepts IPv4 and IPv6, as the store's, and an address of this machine to reach
// it.
struct Listener {
  UniqueFd socket{::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port = 0;

  Listener() {
    const int off = 0;
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    socklen_t size = sizeof any;
    auto& address = reinterpret_cast<sockaddr&>(any);
    REQUIRE(::bind(socket.get(), &address, size) == 0);
    REQUIRE(::listen(socket.get(), 20000) == 0);
    REQUIRE(::getsockname(socket.get(), &address, &size) == 0);
    port = any.sin6_port;
  }
  UniqueFd accept() const {
    return UniqueFd(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
};

UniqueFd connected(int family, std::uint16_t port) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = port;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = port;
  v6.sin6_addr = in6addr_loopback;
  const bool six = family == AF_INET6;
  const auto* address = six ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
  if (::connect(fd.get(), address, six ? sizeof v6 : sizeof v4) != 0) fd.reset();
  return fd;
}

// A process of another user that holds a connection until the test is over.
struct OtherUser {
  pid_t pid;

  OtherUser(int family, std::uint16_t port) : pid(::fork()) {
    if (pid != 0) return;
    if (::setgid(kOther) != 0 || ::setuid(kOther) != 0) ::_exit(1);
    const auto fd = connected(family, port);
    while (true) ::pause();
  }
  ~OtherUser() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  OtherUser(const OtherUser&) = delete;
  OtherUser& operator=(const OtherUser&) = delete;
};

bool has_ipv6() {
  return static_cast<bool>(connected(AF_INET6, Listener().port));
}

sockaddr_storage address_of(const char* text) {
  sockaddr_storage storage{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
  if (::inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
    storage.ss_family = AF_INET;
  } else {
    REQUIRE(::inet_pton(AF_INET6, text, &v6.sin6_addr) == 1);
    storage.ss_family = AF_INET6;
  }
  return storage;
}

}  // namespace

TEST_CASE("connections of our user and of others are told apart", "[store][users][fork]") {
  const int family = GENERATE(AF_INET, AF_INET6);
  if (family == AF_INET6 && !has_ipv6()) return;
  const Listener listener;
  LocalPeers peers;
  const auto mine = connected(family, listener.port);
  CHECK(peers.is_own_user(listener.accept().get()));
  if (::geteuid() != 0) {
    WARN("only root can become another user");
    return;
  }
  const OtherUser other(family, listener.port);
  CHECK_FALSE(peers.is_own_user(listener.accept().get()));

  SECTION("also by the first question") {
    const OtherUser first(family, listener.port);
    LocalPeers fresh;
    CHECK_FALSE(fresh.is_own_user(listener.accept().get()));
  }
}

TEST_CASE("what was sent over a closed connection counts as nobody's", "[store][users]") {
  const Listener listener;
  LocalPeers peers;
  auto gone = connected(AF_INET, listener.port);
  SECTION("reset") {
    ::send(gone.get(), "x", 1, 0);
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(gone.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    const auto connection = listener.accept();
    gone.reset();
    CHECK_FALSE(peers.is_own_user(connection.get()));
  }
  // The kernel keeps such a socket without an owner for a while, and reports root as its user.
  SECTION("read to its end") {
    const std::string request(4000, 'x');
    ::send(gone.get(), request.data(), request.size(), MSG_MORE);
    const auto connection = listener.accept();
    gone.reset();
    std::string got(request.size() + 1, '\0');
    while (::recv(connection.get(), got.data(), got.size(), 0) > 0) {
    }
    const uid_t users[] = {0, ::geteuid()};
    CHECK_FALSE(peers.runs_as(connection.get(), users));
  }
}

TEST_CASE("lack of descriptors does not let everybody in", "[store][users][fork]") {
  const Listener listener;
  const auto gone_in = [&](bool few) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto gone = connected(AF_INET, listener.port);
      const auto connection = listener.accept();
      gone.reset();
      LocalPeers peers;
      const rlimit none{3, 3};
      if (few) ::setrlimit(RLIMIT_NOFILE, &none);
      char byte;
      while (::recv(connection.get(), &byte, 1, 0) > 0) {
      }
      ::_exit(peers.is_own_user(connection.get()) ? 1 : 0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return status;
  };
  CHECK(gone_in(false) == 0);
  CHECK(gone_in(true) == 0);
}

TEST_CASE("addresses of this machine are known", "[store][users]") {
  LocalPeers peers;
  const auto is_local = [&](const char* text) {
    const auto address = address_of(text);
    return peers.is_local(reinterpret_cast<const sockaddr&>(address));
  };
  CHECK(is_local("127.0.0.1"));
  CHECK(is_local("127.9.9.9"));
  CHECK(is_local("::ffff:127.0.0.1"));
  CHECK_FALSE(is_local("192.0.2.1"));
  CHECK_FALSE(is_local("2001:db8::1"));
  CHECK_FALSE(is_local("::ffff:192.0.2.1"));
  const sockaddr_storage none{};
  CHECK_FALSE(peers.is_local(reinterpret_cast<const sockaddr&>(none)));
}

TEST_CASE("the user of a connection is found fast enough for thousands of ranks",
          "[store][users]") {
  const Listener listener;
  LocalPeers peers;
  const auto mine = connected(AF_INET, listener.port);
  const auto connection = listener.accept();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10'000; ++i) REQUIRE(peers.is_own_user(connection.get()));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(500) * 10);
}
