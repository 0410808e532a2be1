#include "rendezvous/store/listener.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/limits.hpp"

namespace mgpu::rendezvous::store {
namespace {

constexpr int kOn = 1;
constexpr int kOff = 0;

const char* advice(int error) {
  if (error == EADDRINUSE) return "; another program uses it, choose another port or 0 for any";
  if (error == EACCES) return "; ports below 1024 require root, choose another or 0 for any";
  return "";
}

[[noreturn]] void fail(const std::string& address, int port, int error) {
  const auto text =
      fmt::format("cannot listen on {}:{}: {}{}", address, port, error_text(error), advice(error));
  if (error == EADDRINUSE) throw PortInUse(text);
  throw std::runtime_error(text);
}

// Binds and listens. Returns 0 or an errno.
int listen_at(int fd, const sockaddr& address, socklen_t size) {
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &kOn, sizeof kOn);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof kOn);  // accepted sockets inherit it
  if (::bind(fd, &address, size) != 0 || ::listen(fd, SOMAXCONN) != 0) return errno;
  return 0;
}

UniqueFd open_socket(int family) {
  return UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

int bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw_errno("cannot read the store's port");
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void check_port(int port) {
  if (port < 0 || port > kLastPort)
    throw std::runtime_error(
        fmt::format("cannot listen on port {}: it must be 0 to {}", port, kLastPort));
}

Listener listen_v4(in_addr_t host, const char* name, int port) {
  check_port(port);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(host);
  UniqueFd fd = open_socket(AF_INET);
  if (!fd) fail(name, port, errno);
  if (const int error = listen_at(fd.get(), reinterpret_cast<sockaddr&>(address), sizeof address))
    fail(name, port, error);
  const int bound = bound_port(fd.get());
  return {std::move(fd), bound};
}

}  // namespace

Listener listen_on_loopback(int port) {
  return listen_v4(INADDR_LOOPBACK, "127.0.0.1", port);
}

Listener listen_on_network(int port) {
  check_port(port);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<std::uint16_t>(port));
  address.sin6_addr = in6addr_any;
  UniqueFd fd = open_socket(AF_INET6);
  if (fd) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &kOff, sizeof kOff);
    const int error = listen_at(fd.get(), reinterpret_cast<sockaddr&>(address), sizeof address);
    if (error == 0) {
      const int bound = bound_port(fd.get());
      return {std::move(fd), bound};
    }
    if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) fail("[::]", port, error);
  }
  return listen_v4(INADDR_ANY, "0.0.0.0", port);
}

Listener listen_on_address(const std::string& address, int port) {
  check_port(port);
  const std::string shown = address.find(':') == address.npos ? address : "[" + address + "]";
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (problem != 0)
    throw std::runtime_error(
        fmt::format("cannot listen on {}:{}: {}", shown, port, ::gai_strerror(problem)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  UniqueFd fd = open_socket(found->ai_family);
  if (!fd) fail(shown, port, errno);
  if (const int error = listen_at(fd.get(), *found->ai_addr, found->ai_addrlen))
    fail(shown, port, error);
  const int bound = bound_port(fd.get());
  return {std::move(fd), bound};
}

}  // namespace mgpu::rendezvous::store
