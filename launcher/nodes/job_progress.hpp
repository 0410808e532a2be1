#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "launcher/lifecycle/step_times.hpp"
#include "launcher/nodes/node_round.hpp"

namespace mgpu::launcher {

// The progress of all ranks of a round, from the reports of their agents. It compares each rank
// with the ranks of all nodes. A value without I/O and clock: a new round begins with a new one.
class JobProgress {
 public:
  // What the ranks of a node have reported; it replaces the node's report before. Returns
  // stragglers that are not known yet: ranks that were slower in five reports in a row.
  std::vector<Straggler> record(NodeId node, const std::vector<RankProgress>& ranks);
  // No rank of the node runs any more.
  void end(NodeId node);

  // A rank of the node was active at this time.
  void note_active(NodeId node, LeaderTime when) { active_[node] = when; }
  // When a rank of any of these nodes was active last, without those that have ended; nothing if
  // one of them does not report it.
  std::optional<LeaderTime> last_active(const std::vector<NodeId>& nodes) const;

  std::vector<RankProgress> of(NodeId node) const;  // by rank

 private:
  struct Rank {
    RankProgress last;
    std::optional<double> sorted;  // its entry in times_
    int slow = 0;                  // its last reports in a row in which it was slower
    bool named = false;
  };

  void sort_times();
  // The median of the other ranks; nothing if it is not known.
  std::optional<double> others_of(const Rank& rank) const;

  std::map<NodeId, std::map<int, Rank>> nodes_;
  std::map<NodeId, LeaderTime> active_;
  // Of all ranks, in order. With thousands of nodes they are sorted once for many reports.
  std::vector<double> times_;
  std::size_t reports_ = 0;  // since they were sorted
};

}  // namespace mgpu::launcher
