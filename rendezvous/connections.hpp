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

// The leader's sockets: one conversation with each agent, and datagrams as signs of life. Passive
// like the store: the owner's loop watches fd() and calls poll() when that is readable, and tick()
// every tick_interval(). All calls and callbacks come in that one thread.
class Connections {
 public:
  using PeerId = std::uint64_t;  // grows in the order of arrival

  struct Settings {
    std::string job;
    Credentials credentials;
    Nanoseconds keep_alive = std::chrono::seconds(5);
    int port = 0;                    // for datagrams; the same as the store's
    std::size_t max_pending = 1024;  // connections that have not proven themselves
    Nanoseconds handshake_timeout = std::chrono::seconds(10);  // the time they have for it
    std::size_t max_unsent = 16 << 20;                         // bytes that a peer may leave unread
    // What a peer may say. An agent says a few things in a round; its signs of life over the
    // stream are the most, 16 a second at the shortest keep-alive.
    RateLimit messages{100, 2000}, bytes{4 << 20, 32 << 20};
  };

  enum class CloseReason {
    ended,   // closed its end: its process is over
    broken,  // the connection failed
    silent,  // nothing came for the keep-alive
  };

  struct Callbacks {
    std::function<void(PeerId)> joined;  // has proven itself
    std::function<void(PeerId, Message&&)> message;
    std::function<void(PeerId, CloseReason)> gone;  // not for those that we closed
    std::function<void(const std::string& line)> rejected;
  };

  Connections(Settings settings, Callbacks callbacks);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections();

  int fd() const { return epoll_.get(); }
  Nanoseconds tick_interval() const { return settings_.keep_alive / 20; }

  // A connection and what came over it so far.
  void adopt(UniqueFd socket, std::string_view bytes);
  // Does the work that is ready, a bounded amount of it. fd() stays readable if there is more.
  void poll();
  // Sends the signs of life that are due and finds those that went silent.
  void tick(Nanoseconds now);

  void send(PeerId peer, const Message& message);
  // Says nothing more to it and closes when all is written.
  void close(PeerId peer);

  struct PeerFacts {
    std::string address;        // of the peer, numeric
    std::string local_address;  // that it reached
    std::string purpose;
    Nanoseconds last_heartbeat{0};
  };
  PeerFacts facts(PeerId peer) const;
  std::size_t peers() const { return by_id_.size(); }

 private:
  struct Peer;
  using Dead = std::vector<PeerId>;

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
  std::list<PeerId> pending_;  // the oldest first
  Dead dead_;
  Nanoseconds last_tick_{0}, awake_since_{0};
};

// The numeric form of an address, without the port; an IPv4 address in IPv6 clothes is undressed.
std::string address_text(const sockaddr_storage& address);

}  // namespace mgpu::rendezvous
