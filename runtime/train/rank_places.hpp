#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "runtime/comm/comm.hpp"

namespace mgpu::train {

// Where a rank runs.
struct RankPlace {
  std::int64_t gpu = -1;  // as CUDA numbers it in that process; -1: the CPU
  std::int64_t pid = 0;
  std::string host;
  std::string device;  // the GPU's name, or "cpu"

  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

// The place of every rank, on every rank. A collective. Names are cut after 63 bytes.
std::vector<RankPlace> gather_places(comm::Comm& comm, c10::Device device);

// What is printed when all ranks are ready: a line for each rank; for more than 8 ranks, a line for
// each run of consecutive ranks on one host; and a line about the whole job, which stands alone if
// there is one rank or the lines would be more than 16.
std::vector<std::string> start_lines(const std::vector<RankPlace>& places,
                                     const std::string& backend);

}  // namespace mgpu::train
