#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/nodes/candidacy.hpp"
#include "launcher/nodes/leader.hpp"
#include "launcher/nodes/leader_connection.hpp"
#include "launcher/nodes/rendezvous_plan.hpp"
#include "launcher/nodes/store_relay.hpp"
#include "rendezvous/etcd/election.hpp"
#include "rendezvous/resolver.hpp"

namespace mgpu::launcher {

// This node's part in a multi-node job: its agent, and the leader if it runs on this node.
class ClusterMember {
 public:
  struct Node {
    std::string job;
    std::string target;
    std::string host;  // this node's host name, for messages
    int nproc = 1;
    bool rank0_store = false;
  };
  struct Callbacks {
    // The ranks of this node reach the store at this address and port.
    std::function<void(const rendezvous::Begin&, const std::string& address, int port)>
        round_started;
    std::function<void(const rendezvous::Stop&)> stop_requested;
    std::function<void(const rendezvous::JobIdle&)> job_idle;
    std::function<void(const rendezvous::Pause&)> paused;
    // The leader is lost: the owner must stop all ranks and then call ranks_stopped().
    std::function<void(const std::string& why)> leader_lost;
    // The job has ended; `message` is for the user. On the leader's node history() has the details.
    std::function<void(int status, const std::string& message)> job_ended;
    std::function<void(rendezvous::Nanoseconds)> lease_extended;
    std::function<void(int socket)> connected;
    std::function<void(std::string_view)> print_note;
  };

  ClusterMember(boost::asio::io_context& io, RendezvousPlan plan, Node node,
                rendezvous::Credentials credentials, Callbacks callbacks);
  ~ClusterMember();
  ClusterMember(const ClusterMember&) = delete;
  ClusterMember& operator=(const ClusterMember&) = delete;

  void start();
  // Report to the leader that this node's ranks in the round are being stopped, or have ended.
  void report_stopping(int round, int signo);
  void report_ended(rendezvous::NodeEnded end, rendezvous::Nanoseconds when);
  // How far this node's ranks in the round are.
  void report_progress(const rendezvous::Progress& progress) { leader_connection_.send(progress); }
  void leave(int signo, const std::string& why);
  void check_leader() { leader_connection_.check_leader(); }
  void ranks_stopped();
  // See LeaderConnection. An elected leader that is suspended is replaced, so it does not ask.
  bool suspend(std::function<void()> ready);
  void resumed() { leader_connection_.resumed(); }
  // Calls `done` when the other nodes have been informed of the job's end.
  void finish(std::function<void()> done);

  // The result of the job over all nodes; null if the leader is on another node.
  const JobResult* history() const { return leader_ ? &leader_->history() : nullptr; }
  // The local address at which other nodes of the round have reached the leader; empty if the
  // leader is on another node, or if there are no other nodes.
  std::string reached_address() const {
    return leader_ ? leader_->reached_address() : std::string();
  }
  const std::string& leader_address() const { return leader_connection_.leader_address(); }
  // The leader's address for ranks of all nodes.
  std::string shared_leader_address() const;
  int leader_port() const { return leader_connection_.leader_port(); }
  // The grace period of this round.
  LeaderTime grace_of(const rendezvous::Begin& begin) const;
  // The network interface that connects this node to the leader; empty: not known.
  std::string interface() const;

 private:
  void add_leader_addresses(std::vector<LeaderConnection::Endpoint>& endpoints);
  Coordinator::Settings local_rules() const;
  bool start_local_leader();
  void start_leader(const Coordinator::Settings& rules, const JobCounts& counts);
  rendezvous::Join make_join();
  void end_job(int status, const std::string& message);

  void start_round(const rendezvous::Begin& begin, const std::string& leader_address, int port);
  int start_relay(const rendezvous::Begin& begin);
  void serve_relay();
  void relay_failed(const std::string& why);
  void tell_relay_problem();
  void stop_relay();

  // Only with etcd: carries out what the Candidacy decides.
  void join_election();
  void feed(CandidacyEvent event);
  void carry_out(const PrintLine& action);
  void carry_out(const FindAddress&);
  void carry_out(const Stand& action);
  void carry_out(const StepAside&);
  void carry_out(const StartLeader& action);
  void carry_out(const StopLeader&);
  void carry_out(const FollowLeader& action);
  void carry_out(const SaveState& action);
  void carry_out(const SaveBeforeLeaving& action);
  void carry_out(const SaveEnd& action);
  void carry_out(const Resign&);
  void carry_out(const EndJob& action);
  void carry_out(const CloseElection&);
  void find_address(std::size_t next, const std::string& loopback);
  void found_address(const std::string& address);
  void end_election(std::function<void()> done);

  boost::asio::io_context& io_;
  RendezvousPlan plan_;
  Node node_;
  rendezvous::Credentials credentials_;
  Callbacks callbacks_;
  std::unique_ptr<Leader> leader_;
  LeaderConnection leader_connection_;
  // Carries the bytes of this node's store clients, while its ranks run and the leader is on
  // another node.
  std::unique_ptr<StoreRelay> relay_;
  std::unique_ptr<boost::asio::posix::stream_descriptor> relay_watch_;
  std::string relay_problem_;  // not told yet: when a job ends, connections close anyway
  boost::asio::steady_timer relay_note_;
  std::unique_ptr<rendezvous::etcd::Election> election_;  // null without etcd
  boost::asio::steady_timer candidacy_pause_;
  std::optional<Candidacy> candidacy_;
  std::deque<CandidacyEvent> candidacy_events_;
  bool feeding_ = false;
  std::function<void()> on_election_closed_;
  rendezvous::Resolver resolver_;
  bool finding_address_ = false;
  bool any_port_ = false;
  JobCounts counts_;               // as received by this agent
  int to_rejoin_ = 0;              // see Begin; of the last round of this node
  LeaderTime lease_and_grace_{0};  // in that round, see Coordinator
  bool excluded_ = false;          // see Notice
  bool ended_ = false;
};

}  // namespace mgpu::launcher
