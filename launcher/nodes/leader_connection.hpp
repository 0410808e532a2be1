#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/authenticated_channel.hpp"
#include "rendezvous/heartbeat.hpp"
#include "rendezvous/resolver.hpp"

namespace mgpu::launcher {

// The address as text, without a scope. IPv4-mapped IPv6 addresses are converted to IPv4.
std::string numeric(const boost::asio::ip::address& address);

// An agent's connection to the leader. Resolves and connects to the leader, authenticates, joins
// the job, and exchanges messages and heartbeats. Tracks until when the leader has certainly heard
// from this agent. Reconnects when the leader is lost.
class LeaderConnection {
 public:
  using Endpoint = boost::asio::ip::tcp::endpoint;

  struct Settings {
    std::string job;
    std::string host;  // of the leader; may not resolve at first; empty: not known yet
    int port = 0;
    rendezvous::Credentials credentials;
    rendezvous::Nanoseconds keep_alive = std::chrono::seconds(5);
    rendezvous::Nanoseconds join_timeout = std::chrono::seconds(600);
  };

  struct Callbacks {
    // Called each time the leader's name was resolved, before connecting. May change the list of
    // addresses, for example add that of a leader in this process.
    std::function<void(std::vector<Endpoint>&)> addresses_resolved;
    // Returns the join request to send now.
    std::function<rendezvous::Join()> make_join;
    std::function<void(const rendezvous::Begin&, const std::string& address, int port)>
        round_started;
    std::function<void(const rendezvous::Stop&)> stop_requested;
    std::function<void(const rendezvous::JobIdle&)> job_idle = [](const auto&) {};
    std::function<void(const rendezvous::Notice&)> noticed;
    std::function<void(const rendezvous::Pause&)> paused;
    // The connection to the leader is lost. The owner must stop all ranks and then call
    // ranks_stopped().
    std::function<void(const std::string& why)> leader_lost;
    std::function<void(int status, const std::string& message)> job_ended;
    // Until when the ranks of this node may run without another heartbeat. A grace period after
    // that the guard kills them.
    std::function<void(rendezvous::Nanoseconds)> lease_extended;
    std::function<void(int socket)> connected;
    std::function<void(std::string_view)> print_note;
  };

  LeaderConnection(boost::asio::io_context& io, Settings settings, Callbacks callbacks);
  LeaderConnection(const LeaderConnection&) = delete;
  LeaderConnection& operator=(const LeaderConnection&) = delete;

  void start();
  // Switches to a leader at another address. If `host` is empty there is none, for the reason
  // `problem`.
  void redirect(const std::string& host, int port, const std::string& problem);
  void send(const rendezvous::Message& message);
  // This process will be suspended. Calls `ready` when the leader does not expect heartbeats any
  // more; the process may be suspended at once if the result is false.
  bool suspend(std::function<void()> ready);
  // After suspend(), when the process runs again.
  void resumed();
  // The leader counts as lost if nothing was heard from it for as long as it may be silent.
  void check_leader();
  // All ranks of this node have ended: the agent may reconnect to a lost leader.
  void ranks_stopped();
  // Sends the leave message and then nothing more. Calls `done` when it is sent or cannot be.
  void leave(const rendezvous::Leave& leave, std::function<void()> done);
  void close();

  bool joined() const { return state_ == State::joined; }
  rendezvous::Nanoseconds keep_alive() const { return settings_.keep_alive; }  // the leader's
  // Converts a time of this machine's clock to the leader's clock.
  rendezvous::Nanoseconds by_leader(rendezvous::Nanoseconds time) const;
  // The local address of the connection to the leader, numeric; empty before the first connection.
  const std::string& our_address() const { return our_address_; }
  const std::string& leader_address() const { return leader_address_; }
  int leader_port() const { return leader_.port(); }
  const Endpoint& leader() const { return leader_; }
  // The leader's address and port, for messages.
  std::string leader_text() const;

 private:
  using Nanoseconds = rendezvous::Nanoseconds;
  enum class State { resolving, connecting, handshaking, joined, cut_off, closed };

  void find_leader();
  void on_resolved(const rendezvous::Resolver::Addresses& addresses, const std::string& problem);
  void connect_next();
  void on_connected(const boost::system::error_code& failed);
  void connect_failed(const std::string& why);
  void retry_later();
  std::string target_text() const;
  // Asio does not set it, and ranks would inherit the sockets.
  static void set_close_on_exec(int fd);
  void give_up();

  void read();
  void on_bytes(std::string_view bytes);
  void on_message(rendezvous::Message&& message);
  void on_welcome(const rendezvous::Welcome& welcome);
  void write();
  void flush_then_close(std::function<void()> done);
  void leader_lost(const std::string& why);
  void disconnect();

  void on_pause(const rendezvous::Pause& pause);
  void restart_heartbeats();
  void arm_heartbeat_timer();
  void on_heartbeat_timer();
  void send_heartbeat(Nanoseconds now);
  Nanoseconds lost_at() const;
  void receive_datagram();

  boost::asio::io_context& io_;
  Settings settings_;
  Callbacks callbacks_;
  State state_ = State::resolving;
  rendezvous::Resolver resolver_;
  boost::asio::ip::tcp::socket stream_;
  boost::asio::ip::udp::socket datagrams_;
  boost::asio::steady_timer connect_timer_, heartbeat_timer_;
  std::uint64_t connection_id_ = 0;  // tells whether a completion belongs to the current connection

  std::vector<Endpoint> candidates_;
  std::size_t next_candidate_ = 0;
  Endpoint leader_;
  std::string our_address_, leader_address_;
  std::string last_problem_;
  Nanoseconds give_up_at_{0}, noted_at_{0}, search_began_{0};
  std::chrono::milliseconds retry_pause_{0};

  std::unique_ptr<rendezvous::AgentChannel> channel_;
  std::array<char, 64 << 10> bytes_{};
  std::string write_buffer_;
  bool write_active_ = false;
  bool was_joined_ = false;
  std::function<void()> on_flushed_;

  std::uint64_t session_ = 0;
  rendezvous::HeartbeatTracker heartbeats_;
  Nanoseconds heartbeat_interval_{0}, next_heartbeat_{0}, next_stream_heartbeat_{0};
  Nanoseconds datagram_received_at_{0};
  // The leader may be silent for the keep-alive from then on: its welcome, or the end of a pause.
  Nanoseconds silent_since_{0};
  bool leader_suspended_ = false;
  std::function<void()> on_suspension_;

  std::array<char, 128> datagram_{};
  boost::asio::ip::udp::endpoint from_;
};

}  // namespace mgpu::launcher
