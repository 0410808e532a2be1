#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "runtime/comm/comm.hpp"
#include "runtime/train/snapshot.hpp"

namespace mgpu::train {

// Reserves memory for snapshots of this size on every rank, or on none. Returns what is missing;
// empty: all have their memory. `node` is the number of this rank's node. A collective.
std::string reserve_on_all_ranks(Snapshot& snapshot, std::uint64_t size, int node, comm::Comm& comm,
                                 c10::Device device);

}  // namespace mgpu::train
