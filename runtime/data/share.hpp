#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mgpu::data {

struct ShareOptions {
  int world = 1;
  std::int64_t max_items = 1;          // per micro-batch
  std::int64_t min_micro_batches = 0;  // the least number of micro-batches per rank
  std::vector<double> weights;         // relative speed of each rank; empty: all equal
};

// Which rank computes what in a step: shares[rank][micro_batch] lists the items by their index in
// the step. All ranks have the same number of micro-batches; some may be empty.
using Shares = std::vector<std::vector<std::vector<std::uint32_t>>>;

// Distributes the items of a step by cost so that all ranks finish at about the same time: the most
// expensive item first, each to the rank that would finish it first and still has space. The number
// of micro-batches is what the busiest rank needs. A rank with weight 0 gets nothing. Every rank
// computes the same result from the same arguments. Throws std::runtime_error unless there is one
// weight per rank, none negative and at least one positive.
Shares share(std::span<const double> costs, const ShareOptions& options);

// How many pairs of tokens causal attention compares in a sequence of this length.
inline double attention_pairs(double length) {
  return length * (length + 1) / 2;
}

// The cost of examples that are computed together: the number of tokens, plus `quadratic` for each
// pair of tokens that attention compares.
double cost_of(std::span<const std::uint32_t> examples, std::span<const std::uint32_t> lengths,
               double quadratic);

}  // namespace mgpu::data
