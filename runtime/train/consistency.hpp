#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/parallel/shards.hpp"

namespace mgpu::train {

// A sum over a tensor's bits that another order or another bit changes: two numbers, int64 [2] on
// its device.
at::Tensor bit_checksum(const at::Tensor& tensor);

struct Difference {
  std::size_t tensor = 0;
  std::vector<int> ranks;  // that have not what most have; all of them if there is no most
};

// sums[rank][tensor * 2 ...]: where the ranks are not alike.
std::vector<Difference> compare_checksums(const std::vector<std::vector<std::int64_t>>& sums);

// Compares what every rank holds a copy of, bit for bit: weights up to ZeRO stage 2, and the
// gradients of the step in stage 0. (In stages 1 and 2 a trained weight is its owner's again after
// every step; frozen ones stay what they were.) Throws naming step, tensor and rank. Waits for the
// device.
void check_consistency(parallel::Shards& shards, comm::Comm& comm, std::int64_t step);

}  // namespace mgpu::train
