#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mgpu::rendezvous {

// A node that may take part in the next round.
struct Candidate {
  std::uint64_t id = 0;  // increases in the order of arrival
  int node_rank = -1;    // requested; -1: none
  int position = -1;     // in the scheduler's order; -1: unknown
  int previous = -1;     // its node rank in the last round; -1: it was not part of it
  bool leads = false;    // the leader, and so the store, runs on this node
};

// Selects the nodes of a round, at most `max_nodes`, and returns their ids by node rank.
//
// Selection prefers nodes of the last round, then the leader's node, then the lower requested node
// rank, then the scheduler's order, then the order of arrival.
//
// Node ranks: a node that requested a rank gets it, or the first free rank if there are fewer nodes
// than that. A node of the last round keeps its rank if there are enough nodes; new nodes fill the
// gaps. In the first round the leader's node gets rank 0.
std::vector<std::uint64_t> assign_node_ranks(std::vector<Candidate> candidates, int max_nodes);

}  // namespace mgpu::rendezvous
