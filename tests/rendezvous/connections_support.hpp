#pragma once

#include "rendezvous/connections.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "tests/support/catch.hpp"

namespace mgpu::tests {

using namespace rendezvous;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

inline const std::string kPreamble =
    std::string(kProtocolMagic) + static_cast<char>(kProtocolVersion);

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Connections whose callbacks are recorded, with a listener like the store's in the launcher.
struct Harness {
  std::vector<Connections::PeerId> joined;
  std::vector<std::pair<Connections::PeerId, Message>> messages;
  std::vector<std::pair<Connections::PeerId, Connections::CloseReason>> gone;
  std::vector<std::string> rejected;
  std::function<void(Connections::PeerId)> on_message;
  UniqueFd listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  int port = 0;
  std::unique_ptr<Connections> connections;

  explicit Harness(Connections::Settings settings = {}) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    // A port that is free for TCP and UDP.
    for (int tries = 0; !connections && tries < 50; ++tries) {
      listener.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      address.sin_port = 0;
      REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
      REQUIRE(::listen(listener.get(), 128) == 0);
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
      port = ntohs(address.sin_port);
      settings.job = "job";
      settings.credentials = {.secret = "secret"};
      settings.port = port;
      try {
        connections = std::make_unique<Connections>(settings, callbacks());
      } catch (const std::exception&) {
        continue;
      }
    }
    REQUIRE(connections);
  }

  Connections::Callbacks callbacks() {
    return {.joined = [this](Connections::PeerId peer) { joined.push_back(peer); },
            .message =
                [this](Connections::PeerId peer, Message&& message) {
                  messages.emplace_back(peer, std::move(message));
                  if (on_message) on_message(peer);
                },
            .gone = [this](Connections::PeerId peer,
                           Connections::CloseReason how) { gone.emplace_back(peer, how); },
            .rejected = [this](const std::string& line) { rejected.push_back(line); }};
  }

  // Polls until the condition holds; false if it does not within 10 s.
  template <class Condition>
  bool until(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      pollfd wanted{connections->fd(), POLLIN, 0};
      if (::poll(&wanted, 1, 2) > 0) connections->serve_ready();
    }
    return true;
  }
};

// An agent without an event loop.
class FakeAgent {
 public:
  explicit FakeAgent(Harness& harness, int receive_buffer = 0)
      : harness_(harness), socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0)
      ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const sockaddr_in address = loopback(harness.port);
    REQUIRE(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
            0);
    ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
    harness.connections->adopt(
        UniqueFd(::accept4(harness.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)),
        "");
  }

  void send_bytes(std::string_view bytes) {
    // Errors are ignored: the connection may be closed already.
    static_cast<void>(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  void send(const Message& message) {
    channel.send(message);
    write();
  }
  void write() { send_bytes(std::exchange(channel.output(), {})); }
  // Writes as much as the socket accepts.
  void write_some() {
    auto& unsent = channel.output();
    const auto sent = ::send(socket_.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL);
    if (sent > 0) unsent.erase(0, static_cast<std::size_t>(sent));
  }

  // Reads all available bytes.
  void read() {
    char bytes[65536];
    ssize_t got = 0;
    while ((got = ::recv(socket_.get(), bytes, sizeof bytes, 0)) > 0) {
      channel.receive({bytes, static_cast<std::size_t>(got)}, received);
      write();
    }
    ended = ended || got == 0 || (errno != EAGAIN && errno != EINTR);
  }

  // Performs the handshake, up to the leader's welcome.
  void join() {
    write();
    REQUIRE(harness_.until([&] {
      read();
      return !received.empty();
    }));
    welcome = std::get<Welcome>(std::get<Message>(received.front()));
    received.clear();
    heartbeats.begin(boot_now());
    id = harness_.joined.back();
  }

  void send_datagram(std::string_view bytes) {
    const sockaddr_in address = loopback(harness_.port);
    REQUIRE(::sendto(datagrams_.get(), bytes.data(), bytes.size(), 0,
                     reinterpret_cast<const sockaddr*>(&address),
                     sizeof address) == static_cast<ssize_t>(bytes.size()));
  }
  std::string next_heartbeat() {
    return encode(heartbeats.next(welcome.session, boot_now()), channel.key_out());
  }
  // Receives a heartbeat datagram of the leader; false if there is none.
  bool receive_heartbeat() {
    char bytes[256];
    const auto got = ::recv(datagrams_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0) return false;
    const auto heartbeat =
        decode_heartbeat({bytes, static_cast<std::size_t>(got)}, channel.key_in());
    return heartbeat && heartbeat->session == welcome.session &&
           heartbeats.receive(*heartbeat, boot_now());
  }

  void close() { socket_.reset(); }
  void reset() {
    const linger now{1, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    socket_.reset();
  }

  AgentChannel channel{{.secret = "secret"}, "job", "agent", "the leader"};
  std::vector<AuthenticatedChannel::Received> received;
  Welcome welcome;
  HeartbeatTracker heartbeats;
  Connections::PeerId id = 0;
  bool ended = false;

 private:
  Harness& harness_;
  UniqueFd socket_;
  UniqueFd datagrams_{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

using Gone = std::vector<std::pair<Connections::PeerId, Connections::CloseReason>>;

}  // namespace mgpu::tests
