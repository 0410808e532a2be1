#include "rendezvous/store/server.hpp"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/store/listener.hpp"
#include "rendezvous/store/relay_records.hpp"
#include "rendezvous/store/watch_fd.hpp"

namespace mgpu::rendezvous::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kReadBytes = 64 << 10;  // per connection and event
constexpr std::size_t kKeepBytes = 1 << 20;   // a larger reply buffer is freed
constexpr char kFirstByte = 0;                // that every store client sends: VALIDATE
constexpr int kEvents = 128;
constexpr int kBatches = 8;       // of kEvents connections in one poll
constexpr int kMaxAccepts = 256;  // per batch

UniqueFd open_epoll() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) throw_errno("cannot create the store's epoll");
  return epoll;
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

}  // namespace

struct StoreServer::Connection {
  Connection(UniqueFd fd, const RequestPolicy& policy)
      : id(fd.get()), socket(std::move(fd)), session(id, &policy) {}
  Connection(ClientId number, RelayOutput& output, const RequestPolicy& policy)
      : id(number), relay(&output), identified(true), session(id, &policy) {}

  ClientId id;
  UniqueFd socket;                     // none: a client on another node
  RelayOutput* relay = nullptr;        // of such a client
  std::size_t allowed = kRelayWindow;  // bytes of replies that it takes now
  std::string held;                    // bytes from it that have to wait
  std::uint32_t watched = EPOLLIN;
  bool closing = false;
  bool identified = false;  // its first byte has been checked
  Session session;
  std::string unsent;               // replies that are not written yet; meanwhile nothing is read
  std::size_t written = 0;          // bytes at the start of `unsent` that are written
  std::size_t counted = 0;          // bytes in `buffered_`
  steady_clock::time_point served;  // the last time
  std::list<Unvalidated>::iterator unvalidated;
};

StoreServer::StoreServer(ServerOptions options)
    : options_(std::move(options)),
      epoll_(open_epoll()),
      acceptor_(open_listener(options_), epoll_.get()),
      now_(steady_clock::now()) {
  alarm_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!alarm_) throw_errno("cannot create the store's timer");
  if (!watch_fd(epoll_.get(), EPOLL_CTL_ADD, alarm_.get(), EPOLLIN))
    throw_errno("cannot watch the store's sockets");
  buffer_.resize(kReadBytes);
}

StoreServer::~StoreServer() = default;

void StoreServer::set(std::string_view key, std::string_view value) {
  for (const ClientId client : memory_.set(key, value)) {
    const char reply = kStopWaiting;
    send(*find(client), {&reply, 1});
  }
}

void StoreServer::serve_ready() {
  for (int round = 0; round < kBatches; ++round) {
    std::array<epoll_event, kEvents> events;
    const int ready = ::epoll_wait(epoll_.get(), events.data(), kEvents, 0);
    now_ = steady_clock::now();
    bool incoming = false;
    bool alarmed = false;
    for (int i = 0; i < ready; ++i) {
      const int fd = events[i].data.fd;
      if (fd == acceptor_.fd())
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
  for (const auto& [id, connection] : relayed_) mark_for_close(*connection);
  close_marked();
  acceptor_.close_waiting();
  memory_.clear();
}

StoreServer::Statistics StoreServer::statistics() const {
  Statistics now{.connections = open_,
                 .unvalidated = unvalidated_.size(),
                 .rejected = rejected_,
                 .keys = memory_.keys(),
                 .relayed = relayed_.size(),
                 .bytes = memory_.bytes()};
  for (const auto& connection : connections_)
    if (connection) now.unsent += connection->unsent.size() - connection->written;
  for (const auto& [id, connection] : relayed_)
    now.unsent += connection->unsent.size() - connection->written;
  return now;
}

StoreServer::Connection* StoreServer::find(ClientId client) const {
  if (client >= 0) return connections_[static_cast<std::size_t>(client)].get();
  const auto found = relayed_.find(client);
  return found == relayed_.end() ? nullptr : found->second.get();
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
  connection.served = now_;
  // What this client has sent moves into the memory, or is answered.
  const std::size_t others = buffered_ - connection.counted;
  memory_.limit(options_.max_bytes - std::min(others, options_.max_bytes));
  output_.clear();
  const bool good = connection.session.receive(bytes, memory_, output_);
  if (was_unvalidated && connection.session.validated()) {
    unvalidated_.erase(connection.unvalidated);
    connection.unvalidated = unvalidated_.end();
  }
  if (!output_.replies.empty()) send(connection, output_.replies);
  for (const ClientId client : output_.released) {
    const char reply = kStopWaiting;
    send(*find(client), {&reply, 1});
  }
  if (output_.replies.capacity() > kKeepBytes) std::string().swap(output_.replies);
  count_buffers(connection);
  if (!good || buffered_ + memory_.footprint() > options_.max_bytes) return reject(connection);
  watch(connection);
}

void StoreServer::count_buffers(Connection& connection) {
  const std::size_t bytes =
      connection.session.buffered() + connection.unsent.size() + connection.held.size();
  buffered_ += bytes - connection.counted;
  connection.counted = bytes;
}

// Writes as much as the socket accepts and keeps the rest.
void StoreServer::send(Connection& connection, std::string_view bytes) {
  if (connection.closing) return;
  if (connection.unsent.empty()) {
    const auto sent = write(connection, bytes);
    if (!sent) return mark_for_close(connection);
    bytes.remove_prefix(*sent);
    if (bytes.empty()) return;
  }
  connection.unsent.append(bytes);
  count_buffers(connection);
  watch(connection);
}

// Returns how many bytes the client takes now; nullopt: its connection has failed.
std::optional<std::size_t> StoreServer::write(Connection& connection, std::string_view bytes) {
  if (connection.relay) {
    const auto taken = bytes.substr(0, connection.allowed);
    connection.allowed -= taken.size();
    if (!taken.empty()) connection.relay->replies(connection.id, taken);
    return taken.size();
  }
  const auto sent = ::send(connection.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) return std::nullopt;
  return static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
}

void StoreServer::flush(Connection& connection) {
  auto& unsent = connection.unsent;
  if (unsent.empty()) return;
  const auto sent = write(connection, std::string_view(unsent).substr(connection.written));
  if (!sent) return mark_for_close(connection);
  connection.written += *sent;
  if (connection.written < unsent.size()) return;
  std::string().swap(unsent);  // assigning would keep the memory
  connection.written = 0;
  count_buffers(connection);
}

// Nothing is read from a client that does not read its replies, which bounds the memory it can use.
void StoreServer::watch(Connection& connection) {
  if (connection.closing || connection.relay) return;
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
  memory_.stop_waiting(connection.id);
  if (connection.unvalidated != unvalidated_.end()) unvalidated_.erase(connection.unvalidated);
  closing_.push_back(connection.id);
}

void StoreServer::reject(Connection& connection) {
  if (connection.closing) return;
  ++rejected_;
  mark_for_close(connection);
}

void StoreServer::close_marked() {
  for (const ClientId client : closing_) {
    buffered_ -= find(client)->counted;
    if (client < 0) {
      const auto found = relayed_.find(client);
      const auto connection = std::move(found->second);
      relayed_.erase(found);
      connection->relay->closed(client);
      continue;
    }
    const int fd = client;
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
  auto accepted = acceptor_.accept();
  if (accepted.took_reserve) {
    if (accepted.socket && !(admits_at_once(accepted.peer, accepted.socket.get()) &&
                             make_room(!options_.other_protocol))) {
      ++rejected_;
      accepted.socket.reset();
    }
    acceptor_.restore_reserve();
  }
  if (accepted.socket) accept_peer(std::move(accepted.socket), accepted.peer);
  if (accepted.starved()) {
    acceptor_.pause();
    set_alarm(Acceptor::kPause);
  }
  return accepted.more();
}

void StoreServer::accept_peer(UniqueFd socket, const sockaddr_storage& peer) {
  if (admits_at_once(peer, socket.get()))
    adopt(std::move(socket));
  else
    ++rejected_;
}

// With two protocols on the port it is not known yet what the connection is.
bool StoreServer::admits_at_once(const sockaddr_storage& peer, int socket) const {
  return options_.other_protocol || !options_.admit ||
         options_.admit(socket, reinterpret_cast<const sockaddr&>(peer));
}

void StoreServer::adopt(UniqueFd socket) {
  const auto fd = static_cast<std::size_t>(socket.get());
  if ((open_ >= options_.max_connections && !make_room(!options_.other_protocol)) ||
      !watch_fd(epoll_.get(), EPOLL_CTL_ADD, socket.get(), EPOLLIN)) {
    ++rejected_;
    return;
  }
  if (connections_.size() <= fd) connections_.resize(std::max(fd + 1, connections_.size() * 2));
  auto connection = std::make_unique<Connection>(std::move(socket), options_.policy);
  add(*(connections_[fd] = std::move(connection)));
}

void StoreServer::add(Connection& connection) {
  connection.served = steady_clock::now();
  connection.unvalidated =
      unvalidated_.insert(unvalidated_.end(), {connection.id, connection.served});
  ++open_;
  if (!alarm_set_ || unvalidated_.size() == options_.crowd_size + 1) set_alarm(time_left());
}

// Closes connections in favour of a new one: the oldest that has not sent VALIDATE, or those that
// have been idle the longest, several at once, since finding them takes a while. False: there is
// none.
bool StoreServer::make_room(bool for_client) {
  if (!unvalidated_.empty()) {
    reject(*find(unvalidated_.front().client));
    close_marked();
    return true;
  }
  if (!for_client) return false;  // a stranger does not displace a client
  const auto now = steady_clock::now();
  if (now < next_idle_) return false;
  std::vector<Connection*> idle;
  next_idle_ = now + options_.idle_timeout;
  const auto examine = [&](Connection& connection) {
    if (memory_.is_waiting(connection.id) || !connection.unsent.empty()) return;
    if (connection.served + options_.idle_timeout <= now)
      idle.push_back(&connection);
    else
      next_idle_ = std::min(next_idle_, connection.served + options_.idle_timeout);
  };
  for (const auto& connection : connections_)
    if (connection && !connection->closing) examine(*connection);
  for (const auto& [id, connection] : relayed_)
    if (!connection->closing) examine(*connection);
  if (idle.empty()) return false;
  next_idle_ = {};
  const auto count = static_cast<std::ptrdiff_t>(idle.size() / 16 + 1);
  std::partial_sort(idle.begin(), idle.begin() + count, idle.end(),
                    [](const auto* a, const auto* b) { return a->served < b->served; });
  std::for_each(idle.begin(), idle.begin() + count,
                [this](Connection* connection) { reject(*connection); });
  close_marked();
  return true;
}

// --- Clients on other nodes

std::optional<ClientId> StoreServer::open_relayed(RelayOutput& output) {
  if (open_ >= options_.max_connections && !make_room(true)) {
    ++rejected_;
    return std::nullopt;
  }
  const ClientId id = next_relayed_--;
  add(*(relayed_[id] = std::make_unique<Connection>(id, output, options_.policy)));
  return id;
}

void StoreServer::receive_relayed(ClientId client, std::string_view bytes) {
  Connection* const connection = find(client);
  if (!connection || connection->closing) return;
  now_ = steady_clock::now();
  connection->held.append(bytes);
  if (connection->held.size() > kRelayWindow)
    reject(*connection);
  else
    serve_relayed(*connection);
  close_marked();
}

void StoreServer::allow_relayed(ClientId client, std::size_t bytes) {
  Connection* const connection = find(client);
  if (!connection || connection->closing) return;
  now_ = steady_clock::now();
  connection->allowed += bytes;
  if (connection->allowed > kRelayWindow) reject(*connection);
  if (!connection->closing) flush(*connection);
  if (!connection->closing) serve_relayed(*connection);
  close_marked();
}

void StoreServer::close_relayed(ClientId client) {
  if (Connection* const connection = find(client)) mark_for_close(*connection);
  close_marked();
}

// As for sockets, nothing is taken from a client that does not read its replies.
void StoreServer::serve_relayed(Connection& connection) {
  while (!connection.closing && connection.unsent.empty()) {
    if (connection.session.has_pending()) {
      process(connection, {});
      continue;
    }
    if (connection.held.empty()) return;
    const std::string bytes = std::exchange(connection.held, {});
    process(connection, bytes);
    if (!connection.closing) connection.relay->consumed(connection.id, bytes.size());
  }
  if (!connection.closing) count_buffers(connection);
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
  acceptor_.resume();
  while (!unvalidated_.empty()) {
    const auto left = time_left();
    if (left > left.zero()) return set_alarm(left);
    reject(*find(unvalidated_.front().client));
  }
}

}  // namespace mgpu::rendezvous::store
