#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/lifecycle/diagnosis.hpp"
#include "launcher/lifecycle/failure_policy.hpp"
#include "launcher/nodes/node_round.hpp"

namespace mgpu::launcher {

// Decides which node of a job must give up its place because its ranks keep failing. A value
// without I/O and clock: it receives the first failure of every failed attempt, in order.
//
// A node is faulty if the first failure of two failed attempts in a row was on it, both times for a
// cause whose policy is to exclude the node, by default one that belongs to it (see
// belongs_to_node), and that no other node had. If the same rank
// then fails for the same cause on another node, the failure follows the rank, so the program or
// its data is at fault: from then on no node is faulty.
class FaultyNodes {
 public:
  struct Failure {
    NodeId node = 0;
    std::string host = {};  // the same host is the same node, also when its agent was restarted
    int rank = 0;           // the global rank
    Cause::Kind cause = Cause::Kind::none;
    // In the same attempt ranks on other nodes failed for this cause too.
    bool on_other_nodes_too = false;
  };
  enum class Verdict { none, faulty, follows_rank };

  explicit FaultyNodes(FailurePolicies policies = {}) : policies_(std::move(policies)) {}

  // `dispensable`: the job can go on without this node, so it gives up its place if it is faulty.
  Verdict assess(const Failure& failure, bool dispensable);
  // After the verdict follows_rank: the node from which the failure followed the rank.
  NodeId cleared() const { return cleared_; }

 private:
  using RankFailures = std::set<std::pair<int, Cause::Kind>>;

  struct Suspect {
    NodeId node = 0;
    std::string host;
    RankFailures failures;
  };

  FailurePolicies policies_;
  std::optional<Suspect> suspect_;  // the node that failed first in the last failed attempt
  std::vector<Suspect> faulty_;
  NodeId cleared_ = 0;
  bool follows_rank_ = false;
};

}  // namespace mgpu::launcher
