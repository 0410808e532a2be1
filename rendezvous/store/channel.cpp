#include "rendezvous/store/channel.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"

namespace mgpu::rendezvous::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kAttemptLimit{5000};  // per address, which may drop our packets

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    throw StoreError(fmt::format("cannot resolve the host of store {}:{}: {}", host, port,
                                 ::gai_strerror(error)));
  return {found, &::freeaddrinfo};
}

// Waits for events until the deadline; like poll, but retries on EINTR.
int poll_until(int fd, short events, Channel::Deadline deadline) {
  pollfd wanted{fd, events, 0};
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    const auto most = std::clamp<milliseconds::rep>(left.count(), 0, 1'000'000'000);
    const int answer = ::poll(&wanted, 1, static_cast<int>(most));
    if (answer >= 0 || errno != EINTR) return answer;
  }
}

// Connects to one address; 0 or an errno.
int connect_to(const addrinfo& address, Channel::Deadline deadline, UniqueFd& socket) {
  socket.reset(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return errno;
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (poll_until(socket.get(), POLLOUT, deadline) <= 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return 0;
}

bool is_transient(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == EHOSTUNREACH ||
         error == ENETUNREACH || error == ETIMEDOUT || error == EAGAIN;
}

}  // namespace

Channel::Channel(const std::string& host, int port, Deadline deadline)
    : server_(fmt::format("{}:{}", host, port)), deadline_(deadline) {
  const Addresses addresses = resolve(host, port);
  for (milliseconds pause{5};; pause = std::min(2 * pause, milliseconds(1000))) {
    int error = 0;
    for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
      error = connect_to(*at, std::min(deadline, steady_clock::now() + kAttemptLimit), socket_);
      if (error == 0) return;
    }
    if (!is_transient(error) || steady_clock::now() + pause >= deadline)
      throw StoreError(fmt::format("cannot connect to store {}: {}", server_, error_text(error)));
    std::this_thread::sleep_for(pause);
  }
}

void Channel::begin(const char* call, Deadline deadline) {
  call_ = call;
  deadline_ = deadline;
}

void Channel::fail(const std::string& what) {
  socket_.reset();
  throw StoreError(fmt::format("store {}: {}: {}", server_, call_, what));
}

bool Channel::readable_by(Deadline deadline) {
  const int answer = poll_until(socket_.get(), POLLIN, deadline);
  if (answer < 0) fail(error_text(errno));
  return answer > 0;
}

void Channel::wait_until(short events) {
  const int answer = poll_until(socket_.get(), events, deadline_);
  if (answer < 0) fail(error_text(errno));
  if (answer == 0) fail("no reply in time");
}

void Channel::send(std::string_view bytes) {
  if (!socket_) fail("the connection is closed");
  while (!bytes.empty()) {
    const auto sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0)
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    else if (errno == EAGAIN)
      wait_until(POLLOUT);
    else if (errno != EINTR)
      fail(error_text(errno));
  }
}

void Channel::read(char* to, std::size_t size) {
  while (size > 0) {
    const auto got = ::recv(socket_.get(), to, size, 0);
    if (got > 0) {
      to += got;
      size -= static_cast<std::size_t>(got);
    } else if (got == 0) {
      fail("it closed the connection");
    } else if (errno == EAGAIN) {
      wait_until(POLLIN);
    } else if (errno != EINTR) {
      fail(error_text(errno));
    }
  }
}

std::string Channel::string() {
  std::string bytes;
  // Grows with the received bytes, so that a length alone cannot make us allocate memory.
  for (auto left = number<std::uint64_t>(); left > 0;) {
    const auto part = std::min<std::uint64_t>(left, 1 << 20);
    bytes.resize(bytes.size() + part);
    read(bytes.data() + bytes.size() - part, part);
    left -= part;
  }
  return bytes;
}

}  // namespace mgpu::rendezvous::store
