#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mgpu::data {

struct ShareOptions {
  int world = 1;
  std::int64_t max_items = 1;      // of a micro-batch
  std::int64_t micro_batches = 0;  // every rank has at least so many
  std::vector<double> weights;     // how fast each rank is, against each other; empty: all alike
};

// Who computes what of a step: shares[rank][micro_batch] is a list of items, by their place in the
// step. All ranks have the same number of micro-batches; some may be empty.
using Shares = std::vector<std::vector<std::vector<std::uint32_t>>>;

// Spreads the items of a step, each with its cost, so that all ranks end at about the same time:
// the dearest item first, each to the rank that would be done with it first and has room. As many
// micro-batches as the busiest rank needs. A rank of weight 0 gets nothing. Every rank computes the
// same answer from the same arguments. Throws std::runtime_error for weights that are not one a
// rank, at least 0, and some above.
Shares share(std::span<const double> costs, const ShareOptions& options);

// The cost of examples that are computed together: their tokens, and `quadratic` for each pair of
// tokens that attention compares.
double cost_of(std::span<const std::uint32_t> examples, std::span<const std::uint32_t> lengths,
               double quadratic);

}  // namespace mgpu::data
