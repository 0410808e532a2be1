#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/parallel/shards.hpp"

namespace mgpu::train {

// A checksum of a tensor's bits, int64 [2] on the device `where`, which computes it. A flipped bit
// or a changed order of elements changes it.
at::Tensor bit_checksum(const at::Tensor& tensor, at::Device where);

struct Difference {
  std::size_t tensor = 0;
  std::vector<int> ranks;  // those that differ from the majority; all ranks if there is no majority
};

// Compares the checksums sums[rank][2 * tensor] and sums[rank][2 * tensor + 1] and returns the
// tensors that are not the same on all ranks.
std::vector<Difference> compare_checksums(const std::vector<std::vector<std::int64_t>>& sums);

// Checks that all ranks hold bit-identical copies of what every rank holds: the weights up to ZeRO
// stage 2, and in stage 0 the gradients of the step. (In stages 1 and 2 every step overwrites
// trained weights with their owner's value, so a difference lasts at most one step; frozen weights
// are never overwritten.) Throws naming step, tensor and ranks. Waits for the device. All ranks
// call it together.
void check_consistency(parallel::Shards& shards, comm::Comm& comm, std::int64_t step);

}  // namespace mgpu::train
