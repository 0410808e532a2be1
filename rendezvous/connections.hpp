#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/authenticated_channel.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/heartbeat.hpp"
#include "rendezvous/protocol.hpp"
#include "rendezvous/rate_limit.hpp"

namespace mgpu::rendezvous {

// The leader's sockets: one authenticated TCP connection per agent, and UDP heartbeats. Passive
// like the store: the owner's event loop watches fd(), calls serve_ready() when it is readable, and
// calls tick() every tick_interval(). All calls and callbacks happen in that one thread.
class Connections {
 public:
  using PeerId = std::uint64_t;  // increases in the order of arrival

  struct Settings {
    std::string job;
    Credentials credentials;
    Nanoseconds keep_alive = std::chrono::seconds(5);
    int port = 0;                    // UDP port; the same number as the store's
    std::size_t max_pending = 1024;  // connections that are not authenticated yet
    Nanoseconds handshake_timeout = std::chrono::seconds(10);  // per connection
    std::size_t max_unsent = 16 << 20;                         // bytes that a peer has not read yet
    // Limits per peer and second, except for store clients' bytes, which have a window per client.
    // An agent sends a few messages per round; heartbeats over the stream are the most frequent, 16
    // a second at the shortest keep-alive.
    RateLimit messages{100, 2000}, bytes{4 << 20, 32 << 20};
  };

  enum class CloseReason {
    closed,  // the peer closed its end: its process has exited
    broken,  // the connection failed
    silent,  // no heartbeat within the keep-alive
  };

  struct Callbacks {
    std::function<void(PeerId)> joined;  // the handshake is complete
    std::function<void(PeerId, Message&&)> message;
    // Of peers with the purpose "store". Throw to reject the peer.
    std::function<void(PeerId, std::string_view records)> store_records;
    std::function<void(PeerId, CloseReason)> gone;  // not called for connections that we closed
    std::function<void(const std::string& line)> rejected;
  };

  Connections(Settings settings, Callbacks callbacks);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections();

  int fd() const { return epoll_.get(); }
  Nanoseconds tick_interval() const { return settings_.keep_alive / 20; }

  // Takes over a connection and the bytes received on it so far.
  void adopt(UniqueFd socket, std::string_view bytes);
  // Handles what is ready, a bounded amount. fd() stays readable if there is more.
  void serve_ready();
  // Sends the heartbeats that are due, and reports peers that are silent.
  void tick(Nanoseconds now);

  void send(PeerId peer, const Message& message);
  void send_store_records(PeerId peer, std::string_view records);  // at most 4 MiB
  // Whether the peer is lost when it sends no heartbeats, as it is at first. It gets none either.
  void expect_heartbeats(PeerId peer, bool expected);
  // Accepts no more messages for this peer and closes the connection once all output is written.
  void close(PeerId peer);

  struct PeerFacts {
    std::string address;        // the peer's, numeric
    std::string local_address;  // the local address that the peer connected to
    std::string purpose;
    Nanoseconds last_heartbeat{0};
  };
  PeerFacts facts(PeerId peer) const;
  std::size_t peers() const { return by_id_.size(); }

 private:
  struct Peer;

  bool poll_once();
  void read(Peer& peer);
  void handle_bytes(Peer& peer, std::string_view bytes);
  void accept_agent(Peer& peer);
  void flush(Peer& peer);
  void drop(Peer& peer, CloseReason how);
  void reject(Peer& peer, const std::string& why);
  void remove_dead();
  void receive_datagrams();
  void send_heartbeat(Peer& peer, Nanoseconds now);
  Nanoseconds heartbeat_interval() const;
  Peer* find(PeerId peer) const;

  Settings settings_;
  Callbacks callbacks_;
  UniqueFd epoll_;
  UniqueFd datagrams_;
  std::vector<char> buffer_;
  PeerId next_id_ = 1;
  std::unordered_map<PeerId, std::unique_ptr<Peer>> by_id_;
  std::unordered_map<std::uint64_t, PeerId> by_session_;
  std::list<PeerId> pending_;  // not authenticated yet, the oldest first
  std::vector<PeerId> dead_;   // to be removed by remove_dead()
  Nanoseconds last_tick_{0}, awake_since_{0};
};

// The numeric form of an address, without the port. IPv4-mapped IPv6 addresses are converted to
// IPv4.
std::string address_text(const sockaddr_storage& address);

}  // namespace mgpu::rendezvous
