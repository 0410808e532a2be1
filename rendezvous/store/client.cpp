#include "rendezvous/store/client.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"

namespace mgpu::rendezvous::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    throw StoreError(fmt::format("cannot find store {}:{}: {}", host, port, ::gai_strerror(error)));
  return {found, &::freeaddrinfo};
}

// How long poll may sleep until the deadline; 0 when it has passed.
int left_until(steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
  return static_cast<int>(std::clamp<milliseconds::rep>(left.count(), 0, 1'000'000'000));
}

// Connects to one address by the deadline; 0 or an errno.
int connect_to(const addrinfo& address, steady_clock::time_point deadline, UniqueFd& socket) {
  socket.reset(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return errno;
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    pollfd wanted{socket.get(), POLLOUT, 0};
    if (::poll(&wanted, 1, left_until(deadline)) <= 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return 0;
}

bool may_pass(int error) {
  return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ECONNRESET || error == EAGAIN;
}

}  // namespace

StoreClient::StoreClient(const std::string& host, int port, Milliseconds timeout)
    : server_(fmt::format("{}:{}", host, port)), timeout_(timeout) {
  begin(Opcode::validate);
  connect(host, port);
  const auto nonce = static_cast<std::uint32_t>(::getpid());
  put_number(request_, kMagic);
  put_opcode(request_, Opcode::ping);
  put_number(request_, nonce);
  send();
  if (number<std::uint32_t>() != nonce) fail("answered PING with another number; is it a store?");
}

void StoreClient::connect(const std::string& host, int port) {
  const Addresses addresses = resolve(host, port);
  for (milliseconds pause{5};; pause = std::min(2 * pause, milliseconds(1000))) {
    int error = 0;
    for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
      error = connect_to(*at, deadline_, socket_);
      if (error == 0) return;
    }
    if (!may_pass(error) || steady_clock::now() + pause >= deadline_)
      throw StoreError(fmt::format("cannot connect to store {}: {}", server_, error_text(error)));
    std::this_thread::sleep_for(pause);
  }
}

void StoreClient::begin(Opcode opcode) {
  deadline_ = steady_clock::now() + timeout_;
  opcode_ = opcode;
  request_.clear();
  put_opcode(request_, opcode);
}

void StoreClient::put_key(std::string_view key) {
  put_number<std::uint64_t>(request_, key.size() + 1);
  request_.push_back('/');
  request_.append(key);
}

void StoreClient::put_keys(std::span<const std::string> keys) {
  put_number<std::uint64_t>(request_, keys.size());
  for (const auto& key : keys) put_key(key);
}

void StoreClient::fail(const std::string& what) {
  socket_.reset();
  throw StoreError(fmt::format("store {}: {} ({})", server_, what, name_of(opcode_)));
}

// Waits until the socket is ready, or fails at the deadline.
void StoreClient::ready(short events) {
  pollfd wanted{socket_.get(), events, 0};
  while (true) {
    const int answer = ::poll(&wanted, 1, left_until(deadline_));
    if (answer > 0) return;
    if (answer < 0 && errno != EINTR) fail(error_text(errno));
    if (answer == 0) fail(fmt::format("no answer within {} s", timeout_.count() / 1000.0));
  }
}

void StoreClient::send() {
  if (!socket_) fail("the connection is closed");
  for (std::string_view rest = request_; !rest.empty();) {
    const auto sent = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent > 0)
      rest.remove_prefix(static_cast<std::size_t>(sent));
    else if (errno == EAGAIN)
      ready(POLLOUT);
    else if (errno != EINTR)
      fail(error_text(errno));
  }
}

void StoreClient::read(char* to, std::size_t size) {
  while (size > 0) {
    const auto got = ::recv(socket_.get(), to, size, 0);
    if (got > 0) {
      to += got;
      size -= static_cast<std::size_t>(got);
    } else if (got == 0) {
      fail("it closed the connection");
    } else if (errno == EAGAIN) {
      ready(POLLIN);
    } else if (errno != EINTR) {
      fail(error_text(errno));
    }
  }
}

template <class Number>
Number StoreClient::number() {
  Number value;
  read(reinterpret_cast<char*>(&value), sizeof value);
  return value;
}

std::string StoreClient::string() {
  std::string bytes;
  // Grows with what comes, so that a server cannot make us allocate with a length alone.
  for (auto left = number<std::uint64_t>(); left > 0;) {
    const auto part = std::min<std::uint64_t>(left, 1 << 20);
    bytes.resize(bytes.size() + part);
    read(bytes.data() + bytes.size() - part, part);
    left -= part;
  }
  return bytes;
}

void StoreClient::set(std::string_view key, std::string_view value) {
  begin(Opcode::set);
  put_key(key);
  put_string(request_, value);
  send();
}

void StoreClient::multi_set(std::span<const std::pair<std::string, std::string>> pairs) {
  begin(Opcode::multi_set);
  put_number<std::int64_t>(request_, pairs.size());
  for (const auto& [key, value] : pairs) {
    put_key(key);
    put_string(request_, value);
  }
  send();
}

void StoreClient::append(std::string_view key, std::string_view value) {
  begin(Opcode::append);
  put_key(key);
  put_string(request_, value);
  send();
}

std::int64_t StoreClient::add(std::string_view key, std::int64_t delta) {
  begin(Opcode::add);
  put_key(key);
  put_number(request_, delta);
  send();
  return number<std::int64_t>();
}

std::string StoreClient::compare_set(std::string_view key, std::string_view expected,
                                     std::string_view desired) {
  begin(Opcode::compare_set);
  put_key(key);
  put_string(request_, expected);
  put_string(request_, desired);
  send();
  return string();
}

bool StoreClient::remove(std::string_view key) {
  begin(Opcode::delete_key);
  put_key(key);
  send();
  return number<std::int64_t>() != 0;
}

std::string StoreClient::get(std::string_view key) {
  const std::string keys[] = {std::string(key)};
  wait(keys);
  return get_now(key);
}

std::string StoreClient::get_now(std::string_view key) {
  begin(Opcode::get);
  put_key(key);
  send();
  return string();
}

std::vector<std::string> StoreClient::multi_get(std::span<const std::string> keys) {
  wait(keys);
  begin(Opcode::multi_get);
  put_keys(keys);
  send();
  std::vector<std::string> values(keys.size());
  for (auto& value : values) value = string();
  return values;
}

bool StoreClient::check(std::span<const std::string> keys) {
  begin(Opcode::check);
  put_keys(keys);
  send();
  return number<std::uint8_t>() == kReady;
}

std::int64_t StoreClient::num_keys() {
  begin(Opcode::num_keys);
  send();
  return number<std::int64_t>();
}

std::vector<std::string> StoreClient::list_keys() {
  begin(Opcode::list_keys);
  send();
  std::vector<std::string> keys;
  for (auto left = number<std::int64_t>(); left > 0; --left) {
    auto key = string();
    if (key.starts_with('/')) keys.push_back(key.substr(1));  // others are c10d's own
  }
  return keys;
}

void StoreClient::push(std::string_view queue, std::string_view value) {
  begin(Opcode::queue_push);
  put_key(queue);
  put_string(request_, value);
  send();
}

std::optional<std::string> StoreClient::try_pop(std::string_view queue) {
  begin(Opcode::queue_pop);
  put_key(queue);
  send();
  if (number<std::int64_t>() == 0) return std::nullopt;
  return string();
}

std::string StoreClient::pop(std::string_view queue) {
  const auto end = steady_clock::now() + timeout_;
  const std::string keys[] = {std::string(queue)};
  while (true) {  // another client may be quicker than we after a wait
    wait(keys, std::chrono::ceil<milliseconds>(end - steady_clock::now()));
    if (auto value = try_pop(queue)) return *std::move(value);
  }
}

std::int64_t StoreClient::queue_length(std::string_view queue) {
  begin(Opcode::queue_length);
  put_key(queue);
  send();
  return number<std::int64_t>();
}

void StoreClient::wait(std::span<const std::string> keys) {
  wait(keys, timeout_);
}

void StoreClient::wait(std::span<const std::string> keys, Milliseconds timeout) {
  begin(Opcode::wait);
  put_keys(keys);
  send();
  wait_for_release(keys.empty() ? std::string_view() : keys.front(), timeout);
}

void StoreClient::barrier(std::string_view key, std::int64_t world_size) {
  barrier(key, world_size, timeout_);
}

void StoreClient::barrier(std::string_view key, std::int64_t world_size, Milliseconds timeout) {
  begin(Opcode::barrier);
  put_key(key);
  put_number(request_, world_size);
  send();
  wait_for_release(key, timeout);
}

// Reads kStopWaiting, or takes the wait back at its deadline.
void StoreClient::wait_for_release(std::string_view what, Milliseconds timeout) {
  const auto end = steady_clock::now() + timeout;
  pollfd wanted{socket_.get(), POLLIN, 0};
  int answer = 0;
  do answer = ::poll(&wanted, 1, left_until(end));
  while (answer < 0 && errno == EINTR);
  if (answer != 0) {
    if (number<std::uint8_t>() != kStopWaiting) fail("answered a wait with nonsense");
    return;
  }
  const Opcode waited = opcode_;
  begin(Opcode::cancel_wait);
  send();
  // The release may have been under way: then it comes first, and the wait has ended well.
  const bool released = number<std::uint8_t>() == kStopWaiting;
  if (released && number<std::uint8_t>() != kWaitCanceled) fail("answered a wait with nonsense");
  if (!released)
    throw StoreTimeout(fmt::format("store {}: {} {} did not end within {} s", server_,
                                   name_of(waited), what, timeout.count() / 1000.0));
}

}  // namespace mgpu::rendezvous::store
