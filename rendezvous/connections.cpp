#include "rendezvous/connections.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "rendezvous/auth.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/exit_status.hpp"

namespace mgpu::rendezvous {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;
constexpr std::size_t kEvents = 256;
constexpr int kBatches = 8;             // of kEvents sockets in one poll
constexpr int kBatchesBeforeTick = 64;  // before a peer is considered silent
constexpr int kMaxDatagrams = 2048;
constexpr std::uint64_t kDatagramSocket = 0;   // the UDP socket's id in epoll; no peer has it
constexpr Nanoseconds kHeartbeatCost{50'000};  // limits ten thousand agents to half a core
constexpr Nanoseconds kCloseTimeout =
    std::chrono::seconds(2);         // for a peer to read our last message
constexpr int kLongestProbe = 1000;  // seconds between probes of a silent peer
constexpr int kOff = 0;
constexpr int kDatagramBufferBytes = 8 << 20;

UniqueFd open_datagrams(int port) {
  for (const int family : {AF_INET6, AF_INET}) {
    UniqueFd fd(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) continue;
    sockaddr_storage address{};
    socklen_t size = sizeof(sockaddr_in);
    if (family == AF_INET6) {
      ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &kOff, sizeof kOff);
      auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
      v6.sin6_port = htons(static_cast<std::uint16_t>(port));
      size = sizeof v6;
    } else {
      reinterpret_cast<sockaddr_in&>(address).sin_port = htons(static_cast<std::uint16_t>(port));
    }
    // Thousands of heartbeats may arrive while we are busy. The kernel may grant a smaller buffer.
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kDatagramBufferBytes,
                 sizeof kDatagramBufferBytes);
    address.ss_family = static_cast<sa_family_t>(family);
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0) return fd;
    if (errno == EADDRINUSE)
      throw std::runtime_error(
          fmt::format("cannot bind UDP port {}: {}; another program uses it, choose another port",
                      port, error_text(errno)));
    if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
      throw_errno(fmt::format("cannot bind UDP port {}", port));
  }
  throw_errno(fmt::format("cannot bind UDP port {}", port));
}

bool watch_fd(int epoll, int operation, int fd, std::uint32_t events, std::uint64_t name) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = name;
  return ::epoll_ctl(epoll, operation, fd, &event) == 0;
}

using AddressFunction = int (*)(int, sockaddr*, socklen_t*);

std::string socket_address(AddressFunction ask, int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (ask(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return address_text(address);
}

}  // namespace

std::string address_text(const sockaddr_storage& address) {
  sockaddr_storage plain = address;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (address.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
    std::memcpy(&plain, &v4, sizeof v4);
  }
  char text[NI_MAXHOST] = {};
  const socklen_t size = plain.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&plain), size, text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) != 0)
    return {};
  return text;
}

struct Connections::Peer {
  Peer(PeerId number, UniqueFd fd, const Settings& settings)
      : id(number),
        socket(std::move(fd)),
        channel(settings.credentials, settings.job),
        messages(settings.messages),
        bytes(settings.bytes) {}

  PeerId id;
  UniqueFd socket;
  LeaderChannel channel;
  bool authenticated = false;
  bool for_store = false;  // carries store clients' bytes, but no heartbeats
  bool closing = false;    // no more messages are sent to it
  bool excused = false;    // no heartbeats are expected from it
  bool all_sent = false;   // the output is written; we only wait for the peer to read it
  bool dead = false;
  bool watches_writable = false;
  RateLimit messages, bytes;
  std::list<PeerId>::iterator pending;
  std::uint64_t session = 0;
  HeartbeatTracker heartbeats;
  Nanoseconds since{0}, expected_since{0}, next_heartbeat{0}, heartbeat_interval{0};
  sockaddr_storage datagrams{};
  socklen_t datagrams_size = 0;
};

Connections::Connections(Settings settings, Callbacks callbacks)
    : settings_(std::move(settings)),
      callbacks_(std::move(callbacks)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      datagrams_(open_datagrams(settings_.port)),
      buffer_(kReadBytes) {
  if (!epoll_ || !watch_fd(epoll_.get(), EPOLL_CTL_ADD, datagrams_.get(), EPOLLIN, kDatagramSocket))
    throw_errno("cannot watch the agents' sockets");
}

Connections::~Connections() = default;

Connections::Peer* Connections::find(PeerId peer) const {
  const auto found = by_id_.find(peer);
  return found == by_id_.end() || found->second->dead ? nullptr : found->second.get();
}

void Connections::adopt(UniqueFd socket, std::string_view bytes) {
  if (pending_.size() >= settings_.max_pending) {
    if (auto* oldest = find(pending_.front())) drop(*oldest, CloseReason::broken);
    remove_dead();
  }
  const PeerId id = next_id_++;
  auto peer = std::make_unique<Peer>(id, std::move(socket), settings_);
  if (!watch_fd(epoll_.get(), EPOLL_CTL_ADD, peer->socket.get(), EPOLLIN, id)) return;
  peer->channel.on_ready([this, id] {
    if (Peer* const waiting = find(id)) handle_bytes(*waiting, {});
    remove_dead();
  });
  peer->since = boot_now();
  peer->pending = pending_.insert(pending_.end(), id);
  Peer& added = *(by_id_[id] = std::move(peer));
  handle_bytes(added, bytes);
  remove_dead();
}

void Connections::serve_ready() {
  for (int round = 0; round < kBatches; ++round)
    if (!poll_once()) return;
}

// False: there is no more work.
bool Connections::poll_once() {
  std::array<epoll_event, kEvents> events;
  const int ready = ::epoll_wait(epoll_.get(), events.data(), kEvents, 0);
  for (int i = 0; i < ready; ++i) {
    if (events[i].data.u64 == kDatagramSocket) {
      receive_datagrams();
      continue;
    }
    Peer* const peer = find(events[i].data.u64);
    if (!peer) continue;
    if (events[i].events & EPOLLOUT) flush(*peer);
    if (!peer->dead && (events[i].events & ~static_cast<unsigned>(EPOLLOUT))) read(*peer);
  }
  remove_dead();
  return ready == static_cast<int>(kEvents);
}

void Connections::read(Peer& peer) {
  const auto got = ::recv(peer.socket.get(), buffer_.data(), buffer_.size(), 0);
  if (got > 0) return handle_bytes(peer, {buffer_.data(), static_cast<std::size_t>(got)});
  if (got == 0 && !peer.closing && !peer.channel.version_conflict().empty())
    return reject(peer, peer.channel.version_conflict());
  if (got == 0) return drop(peer, CloseReason::closed);
  if (errno != EAGAIN && errno != EINTR) drop(peer, CloseReason::broken);
}

void Connections::handle_bytes(Peer& peer, std::string_view bytes) {
  if (peer.closing) return;  // we only wait for it to read our last message
  std::vector<AuthenticatedChannel::Received> received;
  try {
    peer.channel.receive(bytes, received);
  } catch (const std::exception& problem) {
    const auto conflict = peer.channel.version_conflict();
    return reject(peer, conflict.empty() ? problem.what() : conflict);
  }
  const auto now = boot_now();
  if (peer.channel.is_open() && !peer.authenticated) accept_agent(peer);
  const bool limited = !peer.for_store;
  if (limited && (!peer.bytes.take(static_cast<double>(bytes.size()), now) ||
                  !peer.messages.take(static_cast<double>(received.size()), now))) {
    const auto why =
        fmt::format("more than {} messages or {} MiB per second", settings_.messages.per_second(),
                    settings_.bytes.per_second() / (1 << 20));
    peer.channel.refuse({.status = exit_status::kFailure, .why = why});
    return reject(peer, "it sends " + why);
  }
  for (auto& item : received) {
    if (peer.dead || peer.closing) return;
    if (auto* heartbeat = std::get_if<Heartbeat>(&item)) {
      // A peer that sends heartbeats over the stream receives no datagrams: answer over the stream.
      peer.heartbeats.receive(*heartbeat, boot_now());
      peer.channel.send(peer.heartbeats.next(peer.session, boot_now()));
    } else if (auto* records = std::get_if<AuthenticatedChannel::StoreRecords>(&item)) {
      try {
        if (!peer.for_store) throw ProtocolError("it sends store records on another connection");
        callbacks_.store_records(peer.id, records->bytes);
      } catch (const std::exception& problem) {
        return reject(peer, problem.what());
      }
    } else if (auto& message = std::get<Message>(item); std::holds_alternative<Refusal>(message)) {
      return reject(peer, "it refused: " + std::get<Refusal>(message).why);
    } else {
      callbacks_.message(peer.id, std::move(message));
    }
  }
  if (!peer.dead) flush(peer);
}

void Connections::accept_agent(Peer& peer) {
  peer.authenticated = true;
  peer.for_store = peer.channel.purpose() == "store";
  pending_.erase(peer.pending);
  do {
    const std::string random = auth::random_bytes(sizeof peer.session);
    std::memcpy(&peer.session, random.data(), sizeof peer.session);
  } while (!by_session_.emplace(peer.session, peer.id).second);
  peer.heartbeats.begin(boot_now());
  peer.heartbeat_interval = heartbeat_interval();
  peer.channel.send(Welcome{.session = peer.session,
                            .heartbeat_interval = peer.heartbeat_interval.count(),
                            .keep_alive = settings_.keep_alive.count()});
  callbacks_.joined(peer.id);
}

Nanoseconds Connections::heartbeat_interval() const {
  return std::clamp(kHeartbeatCost * static_cast<std::int64_t>(by_id_.size()),
                    settings_.keep_alive / 20, settings_.keep_alive / 8);
}

void Connections::send(PeerId id, const Message& message) {
  Peer* const peer = find(id);
  if (!peer || peer->closing || !peer->channel.is_open()) return;
  peer->channel.send(message);
  flush(*peer);
}

void Connections::send_store_records(PeerId id, std::string_view records) {
  Peer* const peer = find(id);
  if (!peer || peer->closing || !peer->channel.is_open()) return;
  peer->channel.send_store_records(records);
  flush(*peer);
}

void Connections::expect_heartbeats(PeerId id, bool expected) {
  Peer* const peer = find(id);
  if (!peer || peer->excused != expected) return;
  peer->excused = !expected;
  peer->expected_since = boot_now();
  // Without heartbeats the kernel finds out whether the peer's machine is alive.
  const auto keep_alive = std::chrono::ceil<std::chrono::seconds>(settings_.keep_alive).count();
  const int pause = static_cast<int>(std::clamp<std::int64_t>(keep_alive, 1, kLongestProbe));
  const unsigned unanswered = expected ? 0 : 4000 * static_cast<unsigned>(pause);
  const int fd = peer->socket.get(), on = expected ? 0 : 1;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &pause, sizeof pause);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof pause);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered);
}

void Connections::close(PeerId id) {
  Peer* const peer = find(id);
  if (!peer || peer->closing) return;
  peer->closing = true;
  peer->since = boot_now();
  flush(*peer);
}

void Connections::flush(Peer& peer) {
  auto& unsent = peer.channel.output();
  while (!unsent.empty()) {
    const auto sent = ::send(peer.socket.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0) return drop(peer, CloseReason::broken);
    unsent.erase(0, static_cast<std::size_t>(sent));
  }
  if (unsent.empty() && peer.closing && !peer.all_sent) {
    // close() with unread input would reset the connection, and the peer could lose our output.
    peer.all_sent = true;
    peer.since = boot_now();
    ::shutdown(peer.socket.get(), SHUT_WR);
  }
  if (unsent.size() > settings_.max_unsent && !peer.for_store)
    return drop(peer, CloseReason::broken);
  if (unsent.empty()) unsent.shrink_to_fit();
  if (unsent.empty() == !peer.watches_writable) return;
  peer.watches_writable = !unsent.empty();
  const std::uint32_t events = peer.watches_writable ? EPOLLIN | EPOLLOUT : EPOLLIN;
  watch_fd(epoll_.get(), EPOLL_CTL_MOD, peer.socket.get(), events, peer.id);
}

void Connections::drop(Peer& peer, CloseReason how) {
  if (peer.dead) return;
  peer.dead = true;
  dead_.push_back(peer.id);
  if (peer.authenticated && !peer.closing) callbacks_.gone(peer.id, how);
}

// Sends the pending output, which may contain the reason, before the connection is closed.
void Connections::reject(Peer& peer, const std::string& why) {
  const auto address = socket_address(::getpeername, peer.socket.get());
  callbacks_.rejected(fmt::format("rejected a connection from {}: {}", address, why));
  peer.closing = true;
  peer.since = boot_now();
  if (peer.authenticated) callbacks_.gone(peer.id, CloseReason::broken);
  flush(peer);
}

void Connections::remove_dead() {
  for (const PeerId id : dead_) {
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) continue;
    if (!found->second->authenticated) pending_.erase(found->second->pending);
    by_session_.erase(found->second->session);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second->socket.get(), nullptr);
    by_id_.erase(found);
  }
  dead_.clear();
}

void Connections::receive_datagrams() {
  for (int i = 0; i < kMaxDatagrams; ++i) {
    char bytes[kHeartbeatBytes + 1];
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const auto got = ::recvfrom(datagrams_.get(), bytes, sizeof bytes, 0,
                                reinterpret_cast<sockaddr*>(&from), &size);
    if (got < 0) return;
    const std::string_view datagram(bytes, static_cast<std::size_t>(got));
    const auto session = session_of(datagram);
    const auto found = session ? by_session_.find(*session) : by_session_.end();
    Peer* const peer = found == by_session_.end() ? nullptr : find(found->second);
    if (!peer) continue;
    const auto heartbeat = decode_heartbeat(datagram, peer->channel.key_in());
    if (!heartbeat || !peer->heartbeats.receive(*heartbeat, boot_now())) continue;
    // The first one is answered at once: then both sides know that datagrams arrive, and their
    // clock offset.
    if (peer->datagrams_size == 0) peer->next_heartbeat = Nanoseconds(0);
    peer->datagrams = from;
    peer->datagrams_size = size;
    if (peer->next_heartbeat.count() == 0) send_heartbeat(*peer, boot_now());
  }
}

void Connections::send_heartbeat(Peer& peer, Nanoseconds now) {
  if (peer.datagrams_size == 0) return;
  peer.next_heartbeat = now + peer.heartbeat_interval;
  const std::string datagram =
      encode(peer.heartbeats.next(peer.session, now), peer.channel.key_out());
  ::sendto(datagrams_.get(), datagram.data(), datagram.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
           reinterpret_cast<const sockaddr*>(&peer.datagrams), peer.datagrams_size);
}

void Connections::tick(Nanoseconds now) {
  // Heartbeats that arrived while this process slept count. After a long sleep no peer is silent
  // until it has had time to send again.
  for (int round = 0; round < kBatchesBeforeTick && poll_once(); ++round) {
  }
  if (last_tick_.count() != 0 && now - last_tick_ > settings_.keep_alive / 2) awake_since_ = now;
  const bool all_were_heard =
      now - awake_since_ > settings_.keep_alive / 4;  // two heartbeats of each
  last_tick_ = now;
  for (const auto& [id, peer] : by_id_) {
    if (peer->dead) continue;
    if (peer->closing) {
      if (now - peer->since > kCloseTimeout) drop(*peer, CloseReason::broken);
    } else if (!peer->authenticated) {
      if (now - peer->since > settings_.handshake_timeout)
        reject(*peer, peer->channel.version_conflict().empty()
                          ? "it did not complete the handshake in time"
                          : peer->channel.version_conflict());
    } else if (peer->for_store || peer->excused) {
      continue;  // of a store's peer the agent's other connection shows whether the node is alive
    } else if (all_were_heard &&
               now - std::max(peer->heartbeats.last_heartbeat(), peer->expected_since) >
                   settings_.keep_alive) {
      drop(*peer, CloseReason::silent);
    } else if (now >= peer->next_heartbeat) {
      send_heartbeat(*peer, now);
    }
  }
  remove_dead();
}

Connections::PeerFacts Connections::facts(PeerId id) const {
  const auto found = by_id_.find(id);  // including peers that were just dropped
  if (found == by_id_.end()) return {};
  const auto& peer = found->second;
  return {.address = socket_address(::getpeername, peer->socket.get()),
          .local_address = socket_address(::getsockname, peer->socket.get()),
          .purpose = peer->channel.purpose(),
          .last_heartbeat = peer->heartbeats.last_heartbeat()};
}

}  // namespace mgpu::rendezvous
