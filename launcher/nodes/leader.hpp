#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/lifecycle/report.hpp"
#include "launcher/nodes/coordinator.hpp"
#include "launcher/nodes/job_progress.hpp"
#include "launcher/nodes/job_registry.hpp"
#include "rendezvous/connections.hpp"
#include "rendezvous/store/local_peers.hpp"
#include "rendezvous/store/relay_link.hpp"
#include "rendezvous/store/server.hpp"

namespace mgpu::launcher {

// The leader of a multi-node job: serves agents and store clients on one port, and carries out the
// decisions of the Coordinator.
class Leader {
 public:
  struct Settings {
    std::string job;
    std::string target;  // for the failure report
    std::string host;    // this node's host name, for messages
    rendezvous::Credentials credentials;
    Coordinator::Settings rules;
    JobCounts counts;
    int port = 0;
  };
  struct Callbacks {
    std::function<void(std::string_view)> print_line;
    // The job has ended; history() is complete.
    std::function<void(int status)> job_ended;
    // The state that a successor needs has changed.
    std::function<void(const JobCounts&, int nodes, LeaderTime lease_and_grace)> state_changed;
  };

  // Starts to listen on the port. Throws if it cannot.
  Leader(boost::asio::io_context& io, Settings settings, Callbacks callbacks);

  int port() const { return store_.port(); }
  // The results of the job so far, over all nodes.
  const JobResult& history() const { return history_; }
  // The local address that the first other node of this round connected to; may be empty.
  std::string reached_address() const;
  // Whether agents of other nodes have joined.
  bool has_others() const;
  // Calls `done` when every agent has received the job's end, or had the time to.
  void when_agents_informed(std::function<void()> done);

 private:
  using Connections = rendezvous::Connections;

  void serve(boost::asio::posix::stream_descriptor& watch, std::function<void()> work);
  void arm_timer();
  void on_timer();
  void write_trace();
  void on_message(Connections::PeerId peer, rendezvous::Message&& message);
  void on_store_records(Connections::PeerId peer, std::string_view records);
  void record_progress(NodeId node, const rendezvous::Progress& progress);
  void open_link(Connections::PeerId peer, const rendezvous::RelayStore& request);
  void close_links();
  void flush_links();
  void on_gone(Connections::PeerId peer, Connections::CloseReason how);
  void on_rejected(const std::string& line);
  void carry_out_all(Coordinator::Actions actions);
  void carry_out(const SendMessage& action);
  void carry_out(const Dismiss& action);
  void carry_out(const ExpectHeartbeats& action);
  void carry_out(const StartRound& action);
  void carry_out(const RoundEnded& action);
  void carry_out(const PrintLine& action);
  void carry_out(const JobEnded& action);
  AttemptResult merge_results(const RoundEnded& over) const;
  std::string final_message_for(NodeId node) const;
  std::string status() const;
  bool may_use_store(int connection, const sockaddr& peer);
  void check_agents_informed();

  Settings settings_;
  Callbacks callbacks_;
  rendezvous::store::LocalPeers local_peers_;
  rendezvous::store::StoreServer store_;
  Connections connections_;
  // Of agents that carry the bytes of their ranks' store clients.
  std::map<Connections::PeerId, std::unique_ptr<rendezvous::store::RelayLink>> links_;
  std::vector<Connections::PeerId> links_with_output_;
  Coordinator coordinator_;
  boost::asio::posix::stream_descriptor store_watch_, connections_watch_;
  boost::asio::steady_timer timer_;
  std::set<std::string> members_;  // addresses of the nodes in the round
  std::map<NodeId, bool> agents_;  // agents that have joined; true: on this node
  JobResult history_;
  int round_ = -1;
  std::vector<NodeId> round_nodes_;
  JobProgress progress_;  // of the ranks in the round
  int to_rejoin_ = 0;     // see Begin
  std::map<NodeId, std::vector<RankResult>> round_results_;
  int round_restarts_ = 0;  // before this round
  rendezvous::Nanoseconds began_{0}, inform_until_{0}, traced_at_{0};
  NoteThread notes_;
  bool changed_ = false;  // the coordinator has changed since the timer was set
  std::function<void()> on_agents_informed_;
  std::shared_ptr<bool> alive_ =
      std::make_shared<bool>(true);  // expires with this object, for queued completions
  int rejections_ = 0;
  rendezvous::Nanoseconds rejection_noted_at_{0};
};

}  // namespace mgpu::launcher
