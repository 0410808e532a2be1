#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/data/dataset.hpp"

namespace mgpu::data {

// Examples of one source that are used, and how many times an epoch sees each.
struct Selection {
  std::vector<std::uint32_t> examples;
  double weight = 1;
};

struct Split {
  std::vector<Selection> train;  // one a source
  std::vector<std::uint32_t> validation;
};

// Takes `val_set_size` (a fraction below 1, rounded up, or a number) of all examples out for
// validation: which ones depends on the seed and the number of examples. Throws
// std::runtime_error if the size is neither or leaves nothing to train on.
Split split(std::span<const SourceRange> ranges, double val_set_size, std::uint64_t seed);

// How many examples an epoch has: the same in every epoch.
std::uint64_t epoch_size(std::span<const Selection> selections);

// The examples of an epoch (from 0) in their order: a function of the arguments and nothing else.
// A whole weight repeats every example; what is left of it takes a share of them, another one each
// epoch until all had their turn.
std::vector<std::uint32_t> epoch_order(std::span<const Selection> selections, std::uint64_t seed,
                                       std::int64_t epoch, bool shuffled);

}  // namespace mgpu::data
