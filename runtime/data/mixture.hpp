#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/data/order.hpp"

namespace mgpu::data {

enum class MixStrategy {
  concat,            // all rows of all datasets
  interleave_under,  // until the first dataset has no rows left
  interleave_over,   // until every dataset has been read once; shorter ones are repeated
  interleave_once,   // until every dataset has been read once; none is repeated
};

// How an epoch, or a pass of a stream, combines the datasets.
struct Mixture {
  MixStrategy strategy = MixStrategy::concat;
  // How often the next row is one of each dataset; empty: equally often. Any scale.
  std::vector<double> probabilities = {};
};

// Sets the weights of the selections so that an epoch has the examples of interleaved datasets.
// `datasets` has the number of each selection's dataset. Throws std::runtime_error if a dataset has
// no example.
void interleave(std::vector<Selection>& selections, std::span<const std::size_t> datasets,
                const Mixture& mixture);

// The probability of each of `count` datasets; their sum is 1.
std::vector<double> probabilities_of(const Mixture& mixture, std::size_t count);

}  // namespace mgpu::data
