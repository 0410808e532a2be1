#include "launcher/nodes/store_relay.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/store/listener.hpp"

namespace mgpu::launcher {
namespace {

using rendezvous::UniqueFd;
using rendezvous::store::kRelayCreditStep;
using rendezvous::store::kRelayWindow;
using rendezvous::store::put_record;
using rendezvous::store::RelayRecord;
using Kind = RelayRecord::Kind;

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::size_t kRecordsToFlush = 256 << 10;
constexpr int kEvents = 128;
constexpr int kBatches = 8;
constexpr int kMaxAccepts = 256;
// In epoll; a client is its number.
constexpr std::uint64_t kListener = std::uint64_t{1} << 40, kLink = kListener + 1;
constexpr int kOn = 1;

bool watch_fd(int epoll, int operation, int fd, std::uint32_t events, std::uint64_t name) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = name;
  return ::epoll_ctl(epoll, operation, fd, &event) == 0;
}

UniqueFd open_reserve() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

struct StoreRelay::Client {
  rendezvous::store::RelayedClient number = 0;
  UniqueFd socket;
  std::uint32_t watched = EPOLLIN;
  bool closing = false;                // the leader has closed it: only the rest is written
  std::size_t allowed = kRelayWindow;  // bytes that the leader takes from it now
  std::size_t passed_on = 0;           // bytes from the leader for which no credit was given yet
  std::string unsent;                  // bytes from the leader that the client has not read
  std::size_t written = 0;             // bytes at the start of `unsent` that are written
};

StoreRelay::StoreRelay(Settings settings, std::function<void(const std::string&)> failed)
    : settings_(std::move(settings)),
      failed_(std::move(failed)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      reserve_(open_reserve()),
      channel_(settings_.credentials, settings_.job, "store", settings_.leader_name),
      buffer_(kReadBytes) {
  if (!epoll_) rendezvous::throw_errno("cannot create the store relay's epoll");
  auto [socket, port] = rendezvous::store::listen_on_loopback(0);
  listener_ = std::move(socket);
  port_ = port;
  if (!watch_fd(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListener))
    rendezvous::throw_errno("cannot watch the store relay's socket");
  channel_.on_ready([this] {
    on_link_bytes({});
    flush();
  });
  connect();
}

StoreRelay::~StoreRelay() = default;

void StoreRelay::connect() {
  link_.reset(::socket(settings_.leader.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!link_) rendezvous::throw_errno("cannot create a socket for the leader's store");
  ::setsockopt(link_.get(), IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof kOn);
  ::setsockopt(link_.get(), SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof kOn);
  if (::connect(link_.get(), reinterpret_cast<const sockaddr*>(&settings_.leader),
                settings_.leader_size) != 0 &&
      errno != EINPROGRESS)
    rendezvous::throw_errno(fmt::format("cannot connect to {}", settings_.leader_name));
  if (!watch_fd(epoll_.get(), EPOLL_CTL_ADD, link_.get(), EPOLLIN | EPOLLOUT, kLink))
    rendezvous::throw_errno("cannot watch the connection to the leader's store");
}

void StoreRelay::serve_ready() {
  for (int round = 0; round < kBatches && !broken_; ++round) {
    std::array<epoll_event, kEvents> events;
    const int ready = ::epoll_wait(epoll_.get(), events.data(), kEvents, 0);
    bool incoming = false;
    for (int i = 0; i < ready && !broken_; ++i) {
      const auto name = events[i].data.u64;
      if (name == kListener) {
        incoming = true;
      } else if (name == kLink) {
        serve_link(events[i].events);
      } else if (const auto client =
                     clients_.find(static_cast<rendezvous::store::RelayedClient>(name));
                 client != clients_.end()) {
        serve_client(*client->second, events[i].events);
      }
    }
    if (incoming && !broken_) accept_all();
    flush();
    if (ready < kEvents) return;
  }
}

// --- The ranks of this node

void StoreRelay::accept_all() {
  for (int i = 0; i < kMaxAccepts; ++i) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && (errno == EMFILE || errno == ENFILE)) {
      // A connection that is never accepted would wake the event loop forever.
      reserve_.reset();
      const int refused = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (refused >= 0) ::close(refused);
      reserve_ = open_reserve();
      continue;
    }
    if (!socket) return;
    if (!local_peers_.is_own_user(socket.get())) continue;
    const auto number = next_client_++;
    if (!watch_fd(epoll_.get(), EPOLL_CTL_ADD, socket.get(), EPOLLIN, number)) continue;
    auto& client = *(clients_[number] = std::make_unique<Client>());
    client.number = number;
    client.socket = std::move(socket);
    put_record(records_, {.client = number, .kind = Kind::open});
  }
}

void StoreRelay::serve_client(Client& client, std::uint32_t events) {
  if (events & EPOLLOUT) {
    const auto number = client.number;
    write_client(client);
    if (!clients_.contains(number)) return;
  }
  if (!(events & ~static_cast<std::uint32_t>(EPOLLOUT))) return;
  // Without EPOLLIN it is an error or the end of the connection.
  if (client.closing || client.allowed == 0) {
    if (events & (EPOLLERR | EPOLLHUP)) drop(client);
    return;
  }
  read_client(client);
}

void StoreRelay::read_client(Client& client) {
  const auto wanted = std::min(client.allowed, buffer_.size());
  const auto got = ::recv(client.socket.get(), buffer_.data(), wanted, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return drop(client);
  const auto bytes = static_cast<std::size_t>(got);
  client.allowed -= bytes;
  put_record(records_,
             {.client = client.number, .kind = Kind::data, .bytes = {buffer_.data(), bytes}});
  watch_client(client);
  if (records_.size() >= kRecordsToFlush) flush();
}

void StoreRelay::deliver(Client& client, std::string_view bytes) {
  if (client.unsent.empty()) {
    const auto sent = ::send(client.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return drop(client);
    const auto done = static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
    bytes.remove_prefix(done);
    give_credit(client, done);
    if (bytes.empty()) return;
  }
  client.unsent.append(bytes);
  if (client.unsent.size() - client.written > kRelayWindow)
    return fail("the leader sends more than it may");
  watch_client(client);
}

void StoreRelay::write_client(Client& client) {
  auto& unsent = client.unsent;
  const auto sent = ::send(client.socket.get(), unsent.data() + client.written,
                           unsent.size() - client.written, MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) return drop(client);
  const auto done = static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
  client.written += done;
  give_credit(client, done);
  if (client.written < unsent.size()) return;
  if (client.closing) return drop(client);
  std::string().swap(unsent);
  client.written = 0;
  watch_client(client);
}

void StoreRelay::give_credit(Client& client, std::size_t bytes) {
  client.passed_on += bytes;
  if (client.passed_on < kRelayCreditStep || client.closing) return;
  const auto credit = static_cast<std::uint32_t>(std::exchange(client.passed_on, 0));
  put_record(records_, {.client = client.number, .kind = Kind::credit, .number = credit});
}

void StoreRelay::watch_client(Client& client) {
  std::uint32_t wanted = client.allowed > 0 && !client.closing ? std::uint32_t{EPOLLIN} : 0;
  if (!client.unsent.empty()) wanted |= EPOLLOUT;
  if (wanted == client.watched) return;
  client.watched = wanted;
  watch_fd(epoll_.get(), EPOLL_CTL_MOD, client.socket.get(), wanted, client.number);
}

void StoreRelay::drop(Client& client) {
  if (!client.closing) put_record(records_, {.client = client.number, .kind = Kind::close});
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client.socket.get(), nullptr);
  ::shutdown(client.socket.get(), SHUT_RDWR);
  clients_.erase(client.number);
}

// --- The connection to the leader

void StoreRelay::serve_link(std::uint32_t events) {
  if (!connected_) {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(link_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return fail(std::strerror(error));
    if (!(events & EPOLLOUT)) return;
    connected_ = true;
  }
  if (events & EPOLLOUT) write_link();
  if (!broken_ && (events & ~static_cast<std::uint32_t>(EPOLLOUT))) read_link();
}

void StoreRelay::read_link() {
  const auto got = ::recv(link_.get(), buffer_.data(), buffer_.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0) return fail(std::strerror(errno));
  if (got == 0) return fail("the leader closed the connection");
  on_link_bytes({buffer_.data(), static_cast<std::size_t>(got)});
}

void StoreRelay::on_link_bytes(std::string_view bytes) {
  if (broken_) return;
  std::vector<rendezvous::AuthenticatedChannel::Received> received;
  try {
    channel_.receive(bytes, received);
    for (auto& item : received) {
      if (const auto* records =
              std::get_if<rendezvous::AuthenticatedChannel::StoreRecords>(&item)) {
        rendezvous::store::RelayRecordReader reader(records->bytes);
        RelayRecord record;
        while (!broken_ && reader.next(record)) on_record(record);
      } else if (const auto* message = std::get_if<rendezvous::Message>(&item)) {
        if (const auto* refusal = std::get_if<rendezvous::Refusal>(message))
          return fail(refusal->why);
        if (std::holds_alternative<rendezvous::Welcome>(*message)) {
          open_ = true;
          channel_.send(rendezvous::RelayStore{.round = settings_.round});
        }
      }
    }
  } catch (const std::exception& problem) {
    fail(problem.what());
  }
}

void StoreRelay::on_record(const RelayRecord& record) {
  const auto found = clients_.find(record.client);
  if (found == clients_.end()) return;  // it has gone, which the leader learns later
  Client& client = *found->second;
  if (record.kind == Kind::data) return deliver(client, record.bytes);
  if (record.kind == Kind::credit) {
    client.allowed += record.number;
    if (client.allowed > kRelayWindow) return fail("the leader gives more credit than it may");
    return watch_client(client);
  }
  client.closing = true;
  if (client.unsent.empty()) return drop(client);
  watch_client(client);
}

// Signs what has gathered, and sends it.
void StoreRelay::flush() {
  if (broken_) return;
  if (open_ && !records_.empty()) {
    std::string_view rest = records_;
    while (!rest.empty()) {
      const auto part = rendezvous::store::records_for_message(rest);
      channel_.send_store_records(part);
      rest.remove_prefix(part.size());
    }
    records_.clear();
  }
  if (connected_) write_link();
}

void StoreRelay::write_link() {
  auto& unsent = channel_.output();
  std::size_t written = 0;
  while (written < unsent.size()) {
    const auto sent =
        ::send(link_.get(), unsent.data() + written, unsent.size() - written, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0) return fail(std::strerror(errno));
    written += static_cast<std::size_t>(sent);
  }
  unsent.erase(0, written);
  if (unsent.empty() == !link_watches_writable_) return;
  link_watches_writable_ = !unsent.empty();
  watch_fd(epoll_.get(), EPOLL_CTL_MOD, link_.get(),
           link_watches_writable_ ? EPOLLIN | EPOLLOUT : EPOLLIN, kLink);
}

// The ranks lose their connections to the store, as if it had ended.
void StoreRelay::fail(const std::string& why) {
  if (std::exchange(broken_, true)) return;
  // Removed first: close() has no effect while a child that was just forked holds a copy.
  const auto end = [this](const UniqueFd& socket) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
    ::shutdown(socket.get(), SHUT_RDWR);
  };
  end(listener_);
  end(link_);
  for (const auto& [number, client] : clients_) end(client->socket);
  listener_.reset();
  link_.reset();
  if (failed_) failed_(why);
}

}  // namespace mgpu::launcher
