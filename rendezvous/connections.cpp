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

namespace mgpu::rendezvous {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;
constexpr std::size_t kEvents = 256;
constexpr int kRounds = 8;             // of kEvents sockets in one poll
constexpr int kRoundsBeforeTick = 64;  // before anybody is called silent
constexpr int kDatagramsAtATime = 2048;
constexpr std::uint64_t kDatagrams = 0;      // the name of their socket among the peers' ids
constexpr Nanoseconds kCostOfABeat{50'000};  // so that ten thousand agents take half a core
constexpr Nanoseconds kLastWords = std::chrono::seconds(2);  // a peer has to read them
constexpr int kOff = 0;
constexpr int kRoomForDatagrams = 8 << 20;

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
    // Thousands of agents may beat while we are busy; what the kernel does not grant is not had.
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kRoomForDatagrams, sizeof kRoomForDatagrams);
    address.ss_family = static_cast<sa_family_t>(family);
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0) return fd;
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

using AddressOf = int (*)(int, sockaddr*, socklen_t*);

std::string ask_address(AddressOf ask, int fd) {
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
        talk(settings.credentials, settings.job),
        messages(settings.messages),
        bytes(settings.bytes) {}

  PeerId id;
  UniqueFd socket;
  LeaderChannel talk;
  bool introduced = false;
  bool closing = false;   // nothing more is said to it
  bool told_all = false;  // and all is written: what is left is to let it read that
  bool dead = false;
  bool watches_room = false;
  RateLimit messages, bytes;
  std::list<PeerId>::iterator stranger;
  std::uint64_t session = 0;
  HeartbeatTracker pulse;
  Nanoseconds since{0}, next_beat{0}, heartbeat_interval{0};
  sockaddr_storage datagrams{};
  socklen_t datagrams_size = 0;
};

Connections::Connections(Settings settings, Callbacks callbacks)
    : settings_(std::move(settings)),
      callbacks_(std::move(callbacks)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      datagrams_(open_datagrams(settings_.port)),
      buffer_(kReadBytes) {
  if (!epoll_ || !watch_fd(epoll_.get(), EPOLL_CTL_ADD, datagrams_.get(), EPOLLIN, kDatagrams))
    throw_errno("cannot watch the agents' sockets");
}

Connections::~Connections() = default;

Connections::Peer* Connections::find(PeerId peer) const {
  const auto found = by_id_.find(peer);
  return found == by_id_.end() || found->second->dead ? nullptr : found->second.get();
}

void Connections::adopt(UniqueFd socket, std::string_view bytes) {
  if (strangers_.size() >= settings_.most_strangers) {
    if (auto* oldest = find(strangers_.front())) part(*oldest, Parting::broken);
    bury();
  }
  const PeerId id = next_id_++;
  auto peer = std::make_unique<Peer>(id, std::move(socket), settings_);
  if (!watch_fd(epoll_.get(), EPOLL_CTL_ADD, peer->socket.get(), EPOLLIN, id)) return;
  peer->since = steady_now();
  peer->stranger = strangers_.insert(strangers_.end(), id);
  Peer& added = *(by_id_[id] = std::move(peer));
  take(added, bytes);
  bury();
}

void Connections::poll() {
  for (int round = 0; round < kRounds; ++round)
    if (!poll_once()) return;
}

// False: there is no more to do.
bool Connections::poll_once() {
  std::array<epoll_event, kEvents> events;
  const int ready = ::epoll_wait(epoll_.get(), events.data(), kEvents, 0);
  for (int i = 0; i < ready; ++i) {
    if (events[i].data.u64 == kDatagrams) {
      hear_datagrams();
      continue;
    }
    Peer* const peer = find(events[i].data.u64);
    if (!peer) continue;
    if (events[i].events & EPOLLOUT) flush(*peer);
    if (!peer->dead && (events[i].events & ~static_cast<unsigned>(EPOLLOUT))) read(*peer);
  }
  bury();
  return ready == static_cast<int>(kEvents);
}

void Connections::read(Peer& peer) {
  const auto got = ::recv(peer.socket.get(), buffer_.data(), buffer_.size(), 0);
  if (got > 0) return take(peer, {buffer_.data(), static_cast<std::size_t>(got)});
  if (got == 0) return part(peer, Parting::ended);
  if (errno != EAGAIN && errno != EINTR) part(peer, Parting::broken);
}

void Connections::take(Peer& peer, std::string_view bytes) {
  if (peer.closing) return;  // it is only waited for to read our last words
  std::vector<AuthenticatedChannel::Heard> heard;
  try {
    peer.talk.receive(bytes, heard);
  } catch (const std::exception& problem) {
    return turn_away(peer, problem.what());
  }
  const auto now = steady_now();
  if (!peer.bytes.take(static_cast<double>(bytes.size()), now) ||
      !peer.messages.take(static_cast<double>(heard.size()), now)) {
    const auto why =
        fmt::format("more than {} messages or {} MiB per second", settings_.messages.a_second(),
                    settings_.bytes.a_second() / (1 << 20));
    peer.talk.refuse({.status = 1, .why = why});
    return turn_away(peer, "it sends " + why);
  }
  if (peer.talk.is_open() && !peer.introduced) introduce(peer);
  for (auto& item : heard) {
    if (peer.dead || peer.closing) return;
    if (auto* beat = std::get_if<Heartbeat>(&item)) {
      // Whoever sends these has no datagrams from us.
      peer.pulse.hear(*beat, steady_now());
      peer.talk.send(peer.pulse.next(peer.session, steady_now()));
    } else if (auto& message = std::get<Message>(item); std::holds_alternative<Refusal>(message)) {
      return turn_away(peer, "it refused: " + std::get<Refusal>(message).why);
    } else {
      callbacks_.message(peer.id, std::move(message));
    }
  }
  if (!peer.dead) flush(peer);
}

void Connections::introduce(Peer& peer) {
  peer.introduced = true;
  strangers_.erase(peer.stranger);
  do {
    const std::string random = auth::random_bytes(sizeof peer.session);
    std::memcpy(&peer.session, random.data(), sizeof peer.session);
  } while (!by_session_.emplace(peer.session, peer.id).second);
  peer.pulse.begin(steady_now());
  peer.heartbeat_interval = heartbeat_interval();
  peer.talk.send(Welcome{.session = peer.session,
                         .heartbeat_interval = peer.heartbeat_interval.count(),
                         .keep_alive = settings_.keep_alive.count()});
  callbacks_.joined(peer.id);
}

Nanoseconds Connections::heartbeat_interval() const {
  return std::clamp(kCostOfABeat * static_cast<std::int64_t>(by_id_.size()),
                    settings_.keep_alive / 20, settings_.keep_alive / 8);
}

void Connections::send(PeerId id, const Message& message) {
  Peer* const peer = find(id);
  if (!peer || peer->closing || !peer->talk.is_open()) return;
  peer->talk.send(message);
  flush(*peer);
}

void Connections::close(PeerId id) {
  Peer* const peer = find(id);
  if (!peer || peer->closing) return;
  peer->closing = true;
  peer->since = steady_now();
  flush(*peer);
}

void Connections::flush(Peer& peer) {
  auto& unsent = peer.talk.output();
  while (!unsent.empty()) {
    const auto sent = ::send(peer.socket.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0) return part(peer, Parting::broken);
    unsent.erase(0, static_cast<std::size_t>(sent));
  }
  if (unsent.empty() && peer.closing && !peer.told_all) {
    // Closing now, with something unread from it, could take back what we have just written.
    peer.told_all = true;
    peer.since = steady_now();
    ::shutdown(peer.socket.get(), SHUT_WR);
  }
  if (unsent.size() > settings_.most_unsent) return part(peer, Parting::broken);
  if (unsent.empty()) unsent.shrink_to_fit();
  if (unsent.empty() == !peer.watches_room) return;
  peer.watches_room = !unsent.empty();
  const std::uint32_t events = peer.watches_room ? EPOLLIN | EPOLLOUT : EPOLLIN;
  watch_fd(epoll_.get(), EPOLL_CTL_MOD, peer.socket.get(), events, peer.id);
}

void Connections::part(Peer& peer, Parting how) {
  if (peer.dead) return;
  peer.dead = true;
  dying_.push_back(peer.id);
  if (peer.introduced && !peer.closing) callbacks_.gone(peer.id, how);
}

// Tells it why before the connection is closed.
void Connections::turn_away(Peer& peer, const std::string& why) {
  const auto address = ask_address(::getpeername, peer.socket.get());
  callbacks_.turned_away(fmt::format("rejected a connection from {}: {}", address, why));
  peer.closing = true;
  peer.since = steady_now();
  if (peer.introduced) callbacks_.gone(peer.id, Parting::broken);
  flush(peer);
}

void Connections::bury() {
  for (const PeerId id : dying_) {
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) continue;
    if (!found->second->introduced) strangers_.erase(found->second->stranger);
    by_session_.erase(found->second->session);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second->socket.get(), nullptr);
    by_id_.erase(found);
  }
  dying_.clear();
}

void Connections::hear_datagrams() {
  for (int i = 0; i < kDatagramsAtATime; ++i) {
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
    const auto beat = decode_heartbeat(datagram, peer->talk.key_in());
    if (!beat || !peer->pulse.hear(*beat, steady_now())) continue;
    // The first is answered at once: from then on both know the way, and how far their clocks
    // are apart.
    if (peer->datagrams_size == 0) peer->next_beat = Nanoseconds(0);
    peer->datagrams = from;
    peer->datagrams_size = size;
    if (peer->next_beat.count() == 0) this->beat(*peer, steady_now());
  }
}

void Connections::beat(Peer& peer, Nanoseconds now) {
  if (peer.datagrams_size == 0) return;
  peer.next_beat = now + peer.heartbeat_interval;
  const std::string datagram = encode(peer.pulse.next(peer.session, now), peer.talk.key_out());
  ::sendto(datagrams_.get(), datagram.data(), datagram.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
           reinterpret_cast<const sockaddr*>(&peer.datagrams), peer.datagrams_size);
}

void Connections::tick(Nanoseconds now) {
  // What came while we slept counts as heard. If we slept too long ourselves, nobody is silent
  // before it had the time to be heard again.
  for (int round = 0; round < kRoundsBeforeTick && poll_once(); ++round) {
  }
  if (last_tick_.count() != 0 && now - last_tick_ > settings_.keep_alive / 2) awake_since_ = now;
  const bool all_were_heard = now - awake_since_ > settings_.keep_alive / 4;  // two signs of each
  last_tick_ = now;
  for (const auto& [id, peer] : by_id_) {
    if (peer->dead) continue;
    if (peer->closing) {
      if (now - peer->since > kLastWords) part(*peer, Parting::broken);
    } else if (!peer->introduced) {
      if (now - peer->since > settings_.introduction)
        turn_away(*peer, "it did not complete the handshake in time");
    } else if (all_were_heard && now - peer->pulse.last_heard() > settings_.keep_alive) {
      part(*peer, Parting::silent);
    } else if (now >= peer->next_beat) {
      beat(*peer, now);
    }
  }
  bury();
}

Connections::PeerFacts Connections::facts(PeerId id) const {
  const auto found = by_id_.find(id);  // those too that have just gone
  if (found == by_id_.end()) return {};
  const auto& peer = found->second;
  return {.address = ask_address(::getpeername, peer->socket.get()),
          .our_address = ask_address(::getsockname, peer->socket.get()),
          .purpose = peer->talk.purpose(),
          .last_heard = peer->pulse.last_heard()};
}

}  // namespace mgpu::rendezvous
