#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/lifecycle/restart_policy.hpp"
#include "launcher/nodes/faulty_nodes.hpp"
#include "launcher/nodes/node_round.hpp"
#include "rendezvous/protocol.hpp"

namespace mgpu::launcher {

// A limit for grace periods and leases that other nodes report.
inline constexpr LeaderTime kLongestGrace = std::chrono::years(3);

// Counters of the whole job; a new leader continues from them.
struct JobCounts {
  int rounds = 0;    // started so far
  int restarts = 0;  // after failures; the value of TORCHELASTIC_RESTART_COUNT
  int oom_count = 0;

  friend bool operator==(const JobCounts&, const JobCounts&) = default;
};

// --- Actions that the caller must carry out. It fills in the message of an End.

struct SendMessage {
  NodeId node;
  rendezvous::Message message;
};
struct Dismiss {  // close the connection after the last message
  NodeId node;
};
struct ExpectHeartbeats {  // see Connections
  NodeId node;
  bool expected;
};
struct StartRound {  // clear the store and serve it to these nodes, before they are informed
  int round;
  std::vector<NodeId> nodes;  // by node rank
  int to_rejoin;              // see Begin
};
struct RoundEnded {
  int round;
  NodeRound::Failures failures;      // in order of time
  std::string why;                   // if no failure ended it
  std::optional<Decision> decision;  // on the first failure
  std::string node_change;           // which node is replaced or excluded, and why; empty: none
  std::int64_t last_step = -1;       // that a rank of any node reported; -1: none
  bool lost_node = false;            // in this round
};
struct PrintLine {
  std::string line;
  friend bool operator==(const PrintLine&, const PrintLine&) = default;
};
struct JobEnded {
  int status;
  int stop_signal;
  std::string why;  // if no failure ended it
};
using CoordinatorAction = std::variant<SendMessage, Dismiss, ExpectHeartbeats, StartRound,
                                       RoundEnded, PrintLine, JobEnded>;

// Decides for a multi-node job: when a round starts and with which nodes, when it must end, and
// what happens next. It does no I/O and reads no clock; the caller carries out the returned actions
// in order.
//
//   gathering --(enough nodes)--> running --(a failure, a loss, new nodes, a stop)--> stopping
//   stopping  --(every node has ended, or certainly has)--> gathering, resting or over
//   resting   --(the retry delay is over)--> gathering
class Coordinator {
 public:
  struct Settings {
    int min_nodes = 1;
    int max_nodes = 1;
    bool static_ranks = false;  // torchrun's static job: it ends when one node is stopped
    LeaderTime keep_alive = std::chrono::seconds(5);
    LeaderTime grace = std::chrono::seconds(30);
    LeaderTime join_timeout = std::chrono::seconds(600);
    // For more nodes: before the first round, and from when a node joins a running job.
    LeaderTime last_call = std::chrono::seconds(30);
    RestartLimits limits;
    bool direct_store = false;  // ranks of other nodes connect to the leader's store themselves
    int nodes_before = 0;       // in the last round of a lost leader that this one replaces
    int left_before = 0;        // of these, nodes that left with none of their ranks running
    // In that round, the keep-alive and the grace period together; 0: not known.
    LeaderTime lease_and_grace_before{0};
    // By etcd: the previous leader may have been on another node, and another can follow.
    bool elected = false;
  };
  using Actions = std::vector<CoordinatorAction>;

  Coordinator(Settings settings, JobCounts counts, LeaderTime now);

  Actions joined(NodeId node, const rendezvous::Join& join, LeaderTime now);
  Actions failing(NodeId node, const rendezvous::Failing& failing, LeaderTime now);
  Actions ended(NodeId node, const rendezvous::NodeEnded& end, LeaderTime now);
  // The process of a node will be suspended (^Z), or has been resumed. While it is suspended no
  // round begins or is stopped for a new node, and the ranks of all nodes wait.
  Actions suspends(NodeId node, bool suspended, LeaderTime now);
  Actions leaves(NodeId node, const rendezvous::Leave& leave, LeaderTime now);
  // The connection has ended. `certainly_ended`: no process of the job can be left on the node.
  Actions gone(NodeId node, LeaderTime last_heartbeat, bool certainly_ended, const std::string& how,
               LeaderTime now);
  Actions tick(LeaderTime now);
  // When tick() must be called at the latest.
  std::optional<LeaderTime> next_deadline() const;

  const JobCounts& counts() const { return counts_; }
  int round() const { return round_.number(); }
  // After the leader last heard from a node, its ranks of this round may run for so long.
  LeaderTime lease_and_grace() const { return settings_.keep_alive + grace_; }
  bool over() const { return phase_ == Phase::over; }

  // For messages and for `mgpu-run status`.
  struct NodeView {
    NodeId id;
    std::string host;
    int nproc;
    int node_rank;      // in the current or last round; -1: in none
    std::string state;  // running, stopping, ended, lost, waiting, spare, excluded
    LeaderTime since;
  };
  std::vector<NodeView> view() const;
  std::string phase() const;
  // What a gathering job waits for: "1 of 2 nodes joined (host0); missing: node rank 1".
  std::string missing() const;
  std::string host_of(NodeId node) const;

 private:
  static constexpr LeaderTime kNoticeInterval = std::chrono::seconds(1);  // to waiting nodes

  enum class Phase { gathering, running, stopping, resting, over };
  struct Node {
    rendezvous::Join join;
    LeaderTime since{0};
    int node_rank = -1;      // in the current or last round; -1: in none
    bool disputing = false;  // about the node rank that it requested
    bool suspended = false;
    bool gone = false;      // kept until its round is assessed
    bool excluded = false;  // it has given up its place because its ranks kept failing

    bool eligible() const { return !gone && !disputing && !excluded && !suspended; }
  };

  void maybe_start_round(LeaderTime now);
  void maybe_admit_newcomers(LeaderTime now);
  void resolve_disputes(LeaderTime now);
  std::optional<NodeId> holder_of(int node_rank, NodeId except) const;
  void reset_counts_if_all_new();
  void start_round(LeaderTime now);
  void agree_on_grace(const std::vector<NodeId>& nodes);
  // Why the ranks stop: a signal that a node got, or else new nodes; or a failure.
  struct StopCause {
    int signo;
    bool failed;
  };
  static constexpr StopCause kNewNodes{15, false}, kFailure{15, true};
  void stop_round(const std::string& why, NodeId except, LeaderTime now, StopCause cause);
  void send_stop(const std::string& why, NodeId except, StopCause cause);
  void check_round_over(LeaderTime now);
  void assess_round(LeaderTime now);
  void start_gathering(LeaderTime now);
  void finish(int status, const std::string& why);
  void free_nodes();
  void notify_waiting(LeaderTime now);
  std::string notice_for_waiting() const;
  std::string host_list(const std::vector<NodeId>& ids) const;
  void recount();
  int available_nodes() const { return static_cast<int>(nodes_.size()) - unavailable_; }
  std::vector<NodeId> candidates() const;
  std::vector<NodeId> newcomers() const;
  Decision decide(const rendezvous::NodeEnded& failure);
  std::string maybe_exclude(const NodeRound::Failures& failures, Decision& decision);
  std::string exclude(NodeId id, const std::string& why);
  std::string clear(NodeId id, NodeId now_failing, const std::string& why);
  bool is_dispensable(NodeId id) const;
  int nodes_to_rejoin() const;
  void remove_node(NodeId id);
  void note_last_round(const rendezvous::Join& join);
  bool leader_is_suspended() const;
  bool ranks_are_suspended() const;
  bool old_round_may_run(LeaderTime now) const;
  bool has_rejoined(const Node& node) const;
  bool ends_the_job(const Node& node) const;
  Actions take_actions();

  Settings settings_;
  JobCounts counts_;
  LeaderTime began_;
  LeaderTime grace_;  // of the current round: the longest grace period of its nodes
  Phase phase_ = Phase::gathering;
  // The current one; before the next begins, the last one's number without nodes. counts_ may
  // include later rounds, of other leaders.
  NodeRound round_;
  std::map<NodeId, Node> nodes_;
  std::map<int, NodeId> rank_holders_;  // the first node that requested it; may be gone by now
  // Counters, so that ten thousand nodes that join one by one are not counted each time: nodes that
  // are not eligible; that were in a lost leader's round.
  int unavailable_ = 0, rejoined_ = 0;
  Actions actions_;
  LeaderTime join_deadline_{0};
  std::optional<LeaderTime> last_call_;  // when it ends: of the first round, or for new nodes
  LeaderTime rest_until_{0};
  LeaderTime leader_suspended_at_{0};
  LeaderTime last_tick_{0};
  LeaderTime noticed_at_{LeaderTime::min()};  // when waiting nodes were last informed
  bool has_news_ = false;                     // since then
  // Nodes of a lost leader's last round that have not rejoined may still run it. No round starts
  // until they certainly do not.
  LeaderTime hold_until_{0};
  int nodes_before_ = 0;
  bool had_round_ = false;  // a round has started before
  int stop_signal_ = 0;
  std::vector<FailedAttempt> history_;
  FaultyNodes faulty_nodes_;
};

}  // namespace mgpu::launcher
