#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/protocol.hpp"

namespace mgpu::launcher {

using NodeId = std::uint64_t;                 // increases in the order of arrival
using LeaderTime = std::chrono::nanoseconds;  // by the leader's BootClock

inline double in_seconds(LeaderTime time) {
  return std::chrono::duration<double>(time).count();
}

// What the leader knows about one round: whose ranks run, which nodes have ended and how, which are
// lost, and since when and why it is being stopped. A value without I/O and clock: a new round
// begins with a new one.
class NodeRound {
 public:
  using Failures = std::vector<std::pair<NodeId, rendezvous::NodeEnded>>;

  // Without nodes: before the first round, and between a round and the next.
  explicit NodeRound(int number = -1) : number_(number) {}
  NodeRound(int number, const std::vector<NodeId>& nodes);

  int number() const { return number_; }
  std::size_t size() const { return nodes_.size(); }
  // Nodes that have left are no longer part of the round.
  bool has(NodeId node) const { return nodes_.contains(node); }
  bool has_ended(NodeId node) const;
  bool is_lost(NodeId node) const;     // without having ended before
  bool is_working(NodeId node) const;  // neither of both
  std::vector<NodeId> working() const;

  // These have no effect for a node that is not part of the round. A node that has ended cannot be
  // lost any more, and a lost one cannot end.
  void end(NodeId node, const rendezvous::NodeEnded& result);
  // No process of the round is left on the node from `dead_by` on.
  void lose(NodeId node, LeaderTime last_heartbeat, LeaderTime dead_by);
  void remove(NodeId node);
  // A node left or joined at this time, or was asked to stop: later failures are attributed to
  // that.
  void disturb(LeaderTime when);
  // Why the round is being stopped, if no failure is the reason. The first one is kept.
  void stop_because(const std::string& why);
  void replace_stop_reason(const std::string& why) { stop_reason_ = why; }
  const std::string& stop_reason() const { return stop_reason_; }

  // Every node has ended, or is lost and certainly dead.
  bool is_over(LeaderTime now) const;
  bool has_lost_node() const;
  // From when on each lost node is certainly dead.
  std::vector<LeaderTime> dead_by() const;
  bool some_have_ended() const;
  bool all_done() const;  // every node has ended, with success
  // In order of time; those that are a consequence of another node's failure come last.
  Failures failures() const;
  // The same for decisions: if the first one may be a consequence of a rank that does not go on,
  // and a rank of another node was suspended then, the first failure is the hang of that rank and
  // node.
  Failures attributed_failures() const;
  std::int64_t last_step() const;  // that a rank of a node that has ended reported; -1: none
  // Whether the failure may be a consequence of a disturbance or a loss: ranks fail when their
  // peers vanish. It has its own cause only if it happened before both, by more than `slack`.
  bool has_external_cause(const rendezvous::NodeEnded& failure, LeaderTime slack) const;

 private:
  struct Node {
    std::optional<rendezvous::NodeEnded> result;
    bool lost = false;
    LeaderTime last_heartbeat{0}, dead_by{0};

    bool works() const { return !result && !lost; }
  };
  const Node* find(NodeId node) const;

  int number_;
  std::map<NodeId, Node> nodes_;
  // How many work, so that ten thousand nodes that end one by one are not counted each time.
  std::size_t working_ = 0;
  LeaderTime disturbed_at_{LeaderTime::max()};
  std::string stop_reason_;
};

}  // namespace mgpu::launcher
