#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mgpu::rendezvous {

// A node that may take part in the next round.
struct Candidate {
  std::uint64_t id = 0;  // grows in the order of arrival
  int node_rank = -1;    // asked for; -1: none
  int position = -1;     // in the scheduler's order; -1: none
  int previous = -1;     // its node rank in the last round; -1: it was not in it
  bool leads = false;    // the store is there
};

// The nodes of a round by node rank, at most `most` of them: those of the last round before
// others, then the leader's own, then by what they asked for, the scheduler's order and arrival.
//
// Who asked for a node rank has it; when there are not so many nodes, the first that is free, by
// what was asked for.
// Who was there keeps its place while there are so many; newcomers fill the gaps. In the first
// round the leader's own node comes first.
std::vector<std::uint64_t> assign_node_ranks(std::vector<Candidate> candidates, int max_nodes);

}  // namespace mgpu::rendezvous
