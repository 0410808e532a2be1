#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/lifecycle/restart_policy.hpp"
#include "rendezvous/protocol.hpp"

namespace mgpu::launcher {

using NodeId = std::uint64_t;                 // grows in the order of arrival
using LeaderTime = std::chrono::nanoseconds;  // of the leader's steady clock

// What the job as a whole counts; a new leader goes on from here.
struct JobCounts {
  int rounds = 0;    // begun so far
  int restarts = 0;  // after failures; what TORCHELASTIC_RESTART_COUNT says
  int oom_count = 0;
};

// --- What is to be done. The words of End are the actor's.

struct SendMessage {
  NodeId node;
  rendezvous::Message message;
};
struct Dismiss {  // what it was told is the last
  NodeId node;
};
struct StartRound {  // before its nodes are told: the store becomes empty and theirs
  int round;
  std::vector<NodeId> nodes;  // by node rank
};
struct RoundEnded {
  int round;
  std::vector<std::pair<NodeId, rendezvous::NodeEnded>> failures;  // the first one first
  std::string why;                                                 // when no failure ended it
  std::optional<Decision> decision;                                // on the first failure
};
struct PrintLine {
  std::string line;
};
struct JobEnded {
  int status;
  int stop_signal;
  std::string why;  // when no failure tells
};
using CoordinatorAction =
    std::variant<SendMessage, Dismiss, StartRound, RoundEnded, PrintLine, JobEnded>;

// Decides for a job over several nodes: when a round begins and with whom, when it has to end, and
// what comes then. It does no I/O and reads no clock; what it returns is to be done in order.
//
//   gathering --(enough nodes)--> running --(a failure, a loss, a newcomer, a stop)--> stopping
//   stopping  --(every node has ended, or is surely dead)--> gathering, resting or over
//   resting   --(the retry delay is over)--> gathering
class Coordinator {
 public:
  struct Settings {
    int min_nodes = 1;
    int max_nodes = 1;
    bool static_ranks = false;  // torchrun's static job: the end of one node's part ends the job
    LeaderTime keep_alive = std::chrono::seconds(5);
    LeaderTime grace = std::chrono::seconds(30);
    LeaderTime join_timeout = std::chrono::seconds(600);
    LeaderTime last_call = std::chrono::seconds(30);
    RestartLimits limits;
    int nodes_before = 0;  // of the last round of a lost leader whose place we take
    int left_before = 0;   // of these, those that have left it with nothing of theirs running
    bool elected = false;  // the leader: one before it may be elsewhere, and another can follow
  };
  using Actions = std::vector<CoordinatorAction>;

  Coordinator(Settings settings, JobCounts counts, LeaderTime now);

  Actions joined(NodeId node, const rendezvous::Join& join, LeaderTime now);
  Actions failing(NodeId node, const rendezvous::Failing& failing, LeaderTime now);
  Actions ended(NodeId node, const rendezvous::NodeEnded& end, LeaderTime now);
  Actions leaves(NodeId node, const rendezvous::Leave& leave, LeaderTime now);
  // The conversation is over. `surely_over`: nothing of the job can be left there.
  Actions gone(NodeId node, LeaderTime last_heartbeat, bool certainly_ended, const std::string& how,
               LeaderTime now);
  Actions tick(LeaderTime now);
  // When tick has something to do at the latest.
  std::optional<LeaderTime> next_deadline() const;

  const JobCounts& counts() const { return counts_; }
  int round() const { return round_; }
  bool over() const { return phase_ == Phase::over; }

  // For people and for status.
  struct NodeView {
    NodeId id;
    std::string host;
    int nproc;
    int node_rank;      // in the present or last round; -1: in none
    std::string state;  // running, stopping, ended, lost, waiting, spare
    LeaderTime since;
  };
  std::vector<NodeView> view() const;
  std::string phase() const;
  // What a gathering job waits for: "1 of 2 nodes are here, ...".
  std::string missing() const;
  std::string host_of(NodeId node) const;

 private:
  static constexpr LeaderTime kNoticeInterval =
      std::chrono::seconds(1);  // those that wait, what for

  enum class Phase { gathering, running, stopping, resting, over };
  enum class Part { waiting, disputing, in_round, ended };
  struct Node {
    rendezvous::Join join;
    Part part = Part::waiting;
    LeaderTime since{0};
    int node_rank = -1;  // its node rank in the last round
    bool lost = false;
    LeaderTime last_heartbeat{0}, dead_by{0};
    std::optional<rendezvous::NodeEnded> end;
  };

  void maybe_start_round(LeaderTime now);
  void resolve_disputes(LeaderTime now);
  std::optional<NodeId> holder_of(int node_rank, NodeId except) const;
  void reset_counts_if_all_new();
  void start_round(LeaderTime now);
  void stop_round(const std::string& why, NodeId except, LeaderTime now, int signo = 15);
  void check_round_over(LeaderTime now);
  bool round_is_over(LeaderTime now) const;
  void assess_round(LeaderTime now);
  void start_gathering(LeaderTime now);
  void finish(int status, const std::string& why);
  void reset_round();
  void notify_waiting(LeaderTime now);
  void recount();
  int available_nodes() const { return static_cast<int>(nodes_.size()) - unavailable_; }
  std::vector<NodeId> candidates() const;
  std::vector<std::pair<NodeId, rendezvous::NodeEnded>> failures() const;
  bool has_external_cause(const rendezvous::NodeEnded& failure) const;
  Decision decide(const rendezvous::NodeEnded& failure);
  void remove_node(NodeId id);
  bool has_lost_node() const;
  bool in_this_round(const Node& node) const;
  bool old_round_may_run(LeaderTime now) const;
  bool has_rejoined(const Node& node) const;
  bool ends_the_job(const Node& node) const;
  Actions take_actions();

  Settings settings_;
  JobCounts counts_;
  Phase phase_ = Phase::gathering;
  int round_ = -1;  // the present or last; counts_ may know of later ones, of other leaders
  std::map<NodeId, Node> nodes_;
  std::map<int, NodeId> rank_holders_;  // who asked for a node rank first; may be gone by now
  // So that ten thousand that come and go one by one are not counted each time: nodes that are
  // lost or in dispute, that were in a lost leader's round, that have ranks of this round.
  int unavailable_ = 0, rejoined_ = 0, working_ = 0;
  Actions actions_;
  LeaderTime join_deadline_{0};
  std::optional<LeaderTime> last_call_;
  LeaderTime rest_until_{0};
  LeaderTime last_tick_{0};
  LeaderTime noticed_at_{LeaderTime::min()};  // those that wait, what for
  bool has_news_ = false;                     // that they have not been told
  // Nodes of a lost leader's last round that are not back may still run it: until they cannot any
  // more, no round begins.
  LeaderTime hold_until_{0};
  int nodes_before_ = 0;
  bool had_round_ = false;  // there was a round
  int stop_signal_ = 0;
  std::string stop_why_;
  // When somebody left this round or was let in: what fails from then on does so for that.
  LeaderTime disturbed_at_{LeaderTime::max()};
  std::vector<FailedAttempt> history_;
};

}  // namespace mgpu::launcher
