#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/data/dataset.hpp"

namespace mgpu::data {

// The examples of one source to train on, and how many times an epoch contains each.
struct Selection {
  std::vector<std::uint32_t> examples;
  double weight = 1;
};

struct Split {
  std::vector<Selection> train;  // one per source
  std::vector<std::uint32_t> validation;

  std::vector<std::uint32_t> all() const;  // to train on, without weights
};

// Takes `val_set_size` examples out for validation: a fraction below 1 (rounded up) or a number.
// The choice depends on the seed and the number of examples. Those `left_out`, in ascending order,
// are in neither part. Throws std::runtime_error if the size is invalid or leaves nothing to train
// on.
Split split(std::span<const SourceRange> ranges, double val_set_size, std::uint64_t seed,
            std::span<const std::uint32_t> left_out = {});

// Removes this share (rounded down) of all examples, chosen by the seed.
void leave_out(std::vector<Selection>& selections, double share, std::uint64_t seed);

// The number of examples in an epoch. It is the same for every epoch.
std::uint64_t epoch_size(std::span<const Selection> selections);

// The examples of an epoch (from 0) in order. It depends on the arguments only. The integer part of
// a weight repeats every example that many times; the fractional part adds that share of the
// examples, a different share each epoch until all were used.
std::vector<std::uint32_t> epoch_order(std::span<const Selection> selections, std::uint64_t seed,
                                       std::int64_t epoch, bool shuffled);

}  // namespace mgpu::data
