#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/train/fingerprint.hpp"

namespace mgpu::train {

// What a rank trains on and how.
struct RankInputs {
  int rank = 0;
  std::string host;
  Fingerprint inputs;
};

// How the first rank that differs from rank 0 differs from it; nullopt: all are the same. `ranks`
// begins with rank 0.
std::optional<std::string> difference_of(const std::vector<RankInputs>& ranks);

// The settings that must be the same on all ranks: all but paths, and what each machine chooses
// for itself.
Fingerprint shared_settings(const TrainConfig& config);

// Throws InputError on all ranks if they have different recipes, data or models: each node reads
// its own files. A collective.
void require_same_inputs(const Fingerprint& mine, comm::Comm& comm, c10::Device device);

}  // namespace mgpu::train
