#include "rendezvous/store/server.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/store/listener.hpp"

namespace mgpu::rendezvous::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kReadBytes = 64 << 10;  // per connection and event
constexpr std::size_t kKeepBytes = 1 << 20;   // a larger reply buffer is freed
constexpr char kFirstByte = 0;                // that every store client sends: VALIDATE
constexpr int kEvents = 128;
constexpr int kBatches = 8;          // of kEvents connections in one poll
constexpr int kMaxAccepts = 256;     // per batch
constexpr milliseconds kPause{100};  // of accepting, when even the reserve descriptor does not help

bool watch_fd(int epoll, int operation, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return ::epoll_ctl(epoll, operation, fd, &event) == 0;
}

UniqueFd open_reserve() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

UniqueFd accept_from(int listener, sockaddr_storage& peer) {
  socklen_t size = sizeof peer;
  return UniqueFd(
      ::accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Listener open_listener(const ServerOptions& options) {
  switch (options.reach) {
    case ServerOptions::Reach::loopback:
      return listen_on_loopback(options.port);
    case ServerOptions::Reach::network:
      return listen_on_network(options.port);
    case ServerOptions::Reach::address:
      break;
  }
  return listen_on_address(options.address, options.port);
}

bool out_of_resources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

struct StoreServer::Connection {
  Connection(UniqueFd fd, const RequestPolicy& policy)
      : socket(std::move(fd)), session(socket.get(), &policy) {}

  UniqueFd socket;
  std::uint32_t watched = EPOLLIN;
  bool closing = false;
  bool identified = false;  // its first byte has been checked
  Session session;
  std::string unsent;       // replies that are not written yet; meanwhile nothing is read
  std::size_t written = 0;  // bytes at the start of `unsent` that are written
  std::list<Unvalidated>::iterator unvalidated;
};

StoreServer::StoreServer(ServerOptions options) : options_(std::move(options)) {
  auto [socket, port] = open_listener(options_);
  listener_ = std::move(socket);
  port_ = port;
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) throw_errno("cannot create the store's epoll");
  alarm_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!alarm_) throw_errno("cannot create the store's timer");
  reserve_ = open_reserve();
  for (const int fd : {listener_.get(), alarm_.get()})
    if (!watch_fd(epoll_.get(), EPOLL_CTL_ADD, fd, EPOLLIN))
      throw_errno("cannot watch the store's sockets");
  buffer_.resize(kReadBytes);
}

StoreServer::~StoreServer() = default;

void StoreServer::set(std::string_view key, std::string_view value) {
  for (const ClientId client : memory_.set(key, value)) {
    const char reply = kStopWaiting;
    send(*connections_[client], {&reply, 1});
  }
}

void StoreServer::serve_ready() {
  for (int round = 0; round < kBatches; ++round) {
    std::array<epoll_event, kEvents> events;
    const int ready = ::epoll_wait(epoll_.get(), events.data(), kEvents, 0);
    bool incoming = false;
    bool alarmed = false;
    for (int i = 0; i < ready; ++i) {
      const int fd = events[i].data.fd;
      if (fd == listener_.get())
        incoming = true;
      else if (fd == alarm_.get())
        alarmed = true;
      else
        serve(*connections_[fd]);
    }
    // Not earlier: a client that has just sent VALIDATE must not time out, and a descriptor that is
    // closed and reused must not receive an older event.
    if (alarmed) on_alarm();
    close_marked();
    for (int i = 0; incoming && i < kMaxAccepts; ++i) incoming = accept_one();
    if (ready < kEvents) return;
  }
}

void StoreServer::reset() {
  for (const auto& connection : connections_)
    if (connection) mark_for_close(*connection);
  close_marked();
  if (!reserve_) reserve_ = open_reserve();
  reserve_.reset();  // frees a descriptor for accept()
  while (true) {
    const UniqueFd waiting(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!waiting && (errno == EAGAIN || out_of_resources(errno))) break;
  }
  reserve_ = open_reserve();
  memory_.clear();
}

StoreServer::Statistics StoreServer::statistics() const {
  Statistics now{.connections = open_,
                 .unvalidated = unvalidated_.size(),
                 .rejected = rejected_,
                 .keys = memory_.keys(),
                 .bytes = memory_.bytes()};
  for (const auto& connection : connections_)
    if (connection) now.unsent += connection->unsent.size() - connection->written;
  return now;
}

void StoreServer::serve(Connection& connection) {
  if (connection.closing) return;
  if (connection.watched == EPOLLIN) {
    const auto got = ::recv(connection.socket.get(), buffer_.data(), buffer_.size(), 0);
    if (got > 0) return identify(connection, {buffer_.data(), static_cast<std::size_t>(got)});
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) mark_for_close(connection);
    return;
  }
  flush(connection);
  if (connection.closing || !connection.unsent.empty()) return;
  if (connection.session.has_pending()) return process(connection, {});
  watch(connection);
}

// Checks by the first byte whether this is a store client.
void StoreServer::identify(Connection& connection, std::string_view bytes) {
  if (!connection.identified && options_.other_protocol) {
    if (bytes.front() != kFirstByte) return hand_over(connection, bytes);
    if (!admits(connection.socket.get())) return reject(connection);
  }
  connection.identified = true;
  process(connection, bytes);
}

bool StoreServer::admits(int fd) const {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  auto& address = reinterpret_cast<sockaddr&>(peer);
  return !options_.admit ||
         (::getpeername(fd, &address, &size) == 0 && options_.admit(fd, address));
}

void StoreServer::hand_over(Connection& connection, std::string_view bytes) {
  const auto fd = static_cast<std::size_t>(connection.socket.get());
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr) != 0)
    return reject(connection);
  if (connection.unvalidated != unvalidated_.end()) unvalidated_.erase(connection.unvalidated);
  UniqueFd socket = std::move(connection.socket);
  connections_[fd].reset();
  --open_;
  options_.other_protocol(std::move(socket), bytes);
}

void StoreServer::process(Connection& connection, std::string_view bytes) {
  const bool was_unvalidated = !connection.session.validated();
  output_.clear();
  const bool good = connection.session.receive(bytes, memory_, output_);
  if (was_unvalidated && connection.session.validated()) {
    unvalidated_.erase(connection.unvalidated);
    connection.unvalidated = unvalidated_.end();
  }
  if (!output_.replies.empty()) send(connection, output_.replies);
  for (const ClientId client : output_.released) {
    const char reply = kStopWaiting;
    send(*connections_[client], {&reply, 1});
  }
  if (output_.replies.capacity() > kKeepBytes) std::string().swap(output_.replies);
  if (!good) return reject(connection);
  watch(connection);
}

// Writes as much as the socket accepts and keeps the rest.
void StoreServer::send(Connection& connection, std::string_view bytes) {
  if (connection.closing) return;
  if (connection.unsent.empty()) {
    const auto sent = ::send(connection.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return mark_for_close(connection);
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
    if (bytes.empty()) return;
  }
  connection.unsent.append(bytes);
  watch(connection);
}

void StoreServer::flush(Connection& connection) {
  auto& unsent = connection.unsent;
  if (unsent.empty()) return;
  const auto sent = ::send(connection.socket.get(), unsent.data() + connection.written,
                           unsent.size() - connection.written, MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) return mark_for_close(connection);
  if (sent > 0) connection.written += static_cast<std::size_t>(sent);
  if (connection.written < unsent.size()) return;
  std::string().swap(unsent);  // assigning would keep the memory
  connection.written = 0;
}

// Nothing is read from a client that does not read its replies, which bounds the memory it can use.
void StoreServer::watch(Connection& connection) {
  if (connection.closing) return;
  const bool behind = !connection.unsent.empty() || connection.session.has_pending();
  const std::uint32_t wanted = behind ? EPOLLOUT : EPOLLIN;
  if (wanted == connection.watched) return;
  if (!watch_fd(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), wanted))
    return reject(connection);
  connection.watched = wanted;
}

void StoreServer::mark_for_close(Connection& connection) {
  if (connection.closing) return;
  connection.closing = true;
  memory_.stop_waiting(connection.socket.get());
  if (connection.unvalidated != unvalidated_.end()) unvalidated_.erase(connection.unvalidated);
  closing_.push_back(connection.socket.get());
}

void StoreServer::reject(Connection& connection) {
  if (connection.closing) return;
  ++rejected_;
  mark_for_close(connection);
}

void StoreServer::close_marked() {
  for (const int fd : closing_) {
    // close() alone has no effect while a child that was just forked holds a copy.
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    ::shutdown(fd, SHUT_RDWR);
    connections_[fd].reset();
  }
  open_ -= closing_.size();
  closing_.clear();
}

// Accepts one waiting connection; false if there is none, or if accepting must pause.
bool StoreServer::accept_one() {
  sockaddr_storage peer{};
  UniqueFd socket = accept_from(listener_.get(), peer);
  if (!socket && out_of_resources(errno)) return accept_with_reserve();
  if (!socket) return errno != EAGAIN;
  accept_peer(std::move(socket), peer);
  return true;
}

// No descriptor is left. Closing the reserve allows one more accept, if only to reject it: a
// waiting connection that is never accepted would wake the event loop forever. The oldest
// connection without VALIDATE is closed in favour of the new one; validated clients never are.
bool StoreServer::accept_with_reserve() {
  reserve_.reset();
  sockaddr_storage peer{};
  UniqueFd socket = accept_from(listener_.get(), peer);
  const int error = socket ? 0 : errno;
  if (socket && unvalidated_.empty()) {
    ++rejected_;
    socket.reset();
  } else if (socket) {
    reject(*connections_[unvalidated_.front().fd]);
    close_marked();
  }
  reserve_ = open_reserve();
  if (socket) accept_peer(std::move(socket), peer);
  if (out_of_resources(error)) {
    watch_fd(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), 0);
    set_alarm(kPause);
    return false;
  }
  return error != EAGAIN;
}

void StoreServer::accept_peer(UniqueFd socket, const sockaddr_storage& peer) {
  const bool later = static_cast<bool>(options_.other_protocol);
  if (later || !options_.admit ||
      options_.admit(socket.get(), reinterpret_cast<const sockaddr&>(peer)))
    adopt(std::move(socket));
  else
    ++rejected_;
}

void StoreServer::adopt(UniqueFd socket) {
  const auto fd = static_cast<std::size_t>(socket.get());
  if (!watch_fd(epoll_.get(), EPOLL_CTL_ADD, socket.get(), EPOLLIN)) {
    ++rejected_;
    return;
  }
  if (connections_.size() <= fd) connections_.resize(std::max(fd + 1, connections_.size() * 2));
  auto connection = std::make_unique<Connection>(std::move(socket), options_.policy);
  connection->unvalidated =
      unvalidated_.insert(unvalidated_.end(), {static_cast<int>(fd), steady_clock::now()});
  connections_[fd] = std::move(connection);
  ++open_;
  if (!alarm_set_ || unvalidated_.size() == options_.crowd_size + 1) set_alarm(time_left());
}

// The time left for the oldest connection without VALIDATE; there must be one.
milliseconds StoreServer::time_left() const {
  const bool crowded = unvalidated_.size() > options_.crowd_size;
  const auto until = unvalidated_.front().since + options_.validate_timeout / (crowded ? 10 : 1);
  return std::chrono::ceil<milliseconds>(until - steady_clock::now());
}

void StoreServer::set_alarm(milliseconds delay) {
  const auto ns = std::max<std::chrono::nanoseconds>(delay, std::chrono::nanoseconds(1));
  itimerspec when{};
  when.it_value.tv_sec = ns.count() / 1'000'000'000;
  when.it_value.tv_nsec = ns.count() % 1'000'000'000;
  ::timerfd_settime(alarm_.get(), 0, &when, nullptr);
  alarm_set_ = true;
}

// Resumes accepting if it was paused, and closes connections that took too long to send VALIDATE.
void StoreServer::on_alarm() {
  std::uint64_t expirations = 0;
  if (::read(alarm_.get(), &expirations, sizeof expirations) < 0) return;
  alarm_set_ = false;
  if (!reserve_) reserve_ = open_reserve();
  watch_fd(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), EPOLLIN);
  while (!unvalidated_.empty()) {
    const auto left = time_left();
    if (left > left.zero()) return set_alarm(left);
    reject(*connections_[unvalidated_.front().fd]);
  }
}

}  // namespace mgpu::rendezvous::store
