#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/base/unique_fd.hpp"
#include "tests/support/catch.hpp"

namespace mgpu::tests {

// An abstract address, without the @ before its name.
struct LocalAddress {
  explicit LocalAddress(std::string_view name) {
    at.sun_family = AF_UNIX;
    REQUIRE(name.size() < sizeof at.sun_path);
    std::memcpy(at.sun_path + 1, name.data(), name.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&at); }

  sockaddr_un at{};
  socklen_t length = 0;
};

inline rendezvous::UniqueFd local_socket() {
  return rendezvous::UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

// One end of a connection to the worker socket.
class LocalConnection {
 public:
  LocalConnection() = default;
  explicit LocalConnection(rendezvous::UniqueFd fd) : fd_(std::move(fd)) {}
  // Connects to "@NAME".
  explicit LocalConnection(const std::string& address) : fd_(local_socket()) {
    const LocalAddress to(std::string_view(address).substr(1));
    REQUIRE(::connect(fd_.get(), to.get(), to.length) == 0);
  }

  void send(std::string_view text) {
    REQUIRE(::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(text.size()));
  }
  // What arrives next; empty at the end.
  std::string receive() {
    char bytes[256];
    const auto got = ::recv(fd_.get(), bytes, sizeof bytes, 0);
    return {bytes, got > 0 ? static_cast<std::size_t>(got) : 0};
  }
  // The next line with its end.
  std::string line() {
    std::string line;
    for (char c = 0; c != '\n' && ::recv(fd_.get(), &c, 1, 0) == 1;) line += c;
    return line;
  }
  // What has arrived, without waiting; "closed" at the end.
  std::string received() {
    char bytes[256];
    const auto got = ::recv(fd_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return "closed";
    return got < 0 ? std::string() : std::string(bytes, static_cast<std::size_t>(got));
  }

 private:
  rendezvous::UniqueFd fd_;
};

// Listens as a launcher does for its ranks.
class LocalListener {
 public:
  explicit LocalListener(std::string name) : name_(std::move(name)), fd_(local_socket()) {
    const LocalAddress at(name_);
    REQUIRE(::bind(fd_.get(), at.get(), at.length) == 0);
    REQUIRE(::listen(fd_.get(), 4) == 0);
  }
  std::string address() const { return "@" + name_; }
  LocalConnection accept() {
    return LocalConnection(rendezvous::UniqueFd(::accept(fd_.get(), nullptr, nullptr)));
  }

 private:
  std::string name_;
  rendezvous::UniqueFd fd_;
};

}  // namespace mgpu::tests
