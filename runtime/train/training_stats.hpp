#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/train/rank_places.hpp"

namespace mgpu::train {

// The place of a process in its job, and its progress.
struct TrainingStats {
  int rank = 0;
  int world_size = 1;
  bool is_distributed = false;  // whether there are several ranks
  std::int64_t step = 0;        // steps done
  std::int64_t total_steps = 0;
  double epoch = 0;

  friend bool operator==(const TrainingStats&, const TrainingStats&) = default;
};

// The content of training_status.json. `state`: running, complete, stopped or early; `time`:
// seconds since 1970.
std::string status_text(const TrainingStats& stats, const std::string& state, double time,
                        const std::string& run_id, int restarts, const std::string& backend,
                        const std::vector<RankPlace>& places);

}  // namespace mgpu::train
