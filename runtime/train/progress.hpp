#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/train/fingerprint.hpp"
#include "runtime/train/loss_scaler.hpp"

namespace mgpu::train {

// What a run does because it ran out of memory.
struct OomState {
  std::vector<std::string> changes;  // of settings, as OomRemedy::change; the first one tried first
  std::int64_t pieces = 1;           // see LearnerOptions
  std::int64_t oom_count = 0;        // MGPU_OOM_COUNT of the attempt
  std::vector<std::string> jobs;     // its MGPU_JOB_COOKIE on each node

  friend bool operator==(const OomState&, const OomState&) = default;
};

std::string oom_state_text(const OomState& state);
OomState parse_oom_state(std::string_view text, const std::string& file);

// The progress of a run as trainer_state.json stores it: what a resumed run needs besides tensors.
struct Progress {
  std::int64_t step = 0;  // steps done
  double epoch = 0;
  std::int64_t global_batch = 0;  // items per step
  std::uint64_t data_seed = 0;
  std::int64_t tokens = 0;                   // trained on so far
  std::int64_t updates = 0;                  // steps that were not skipped
  std::optional<LossScaleState> loss_scale;  // empty: the loss was not scaled
  std::optional<OomState> oom;               // empty: memory was sufficient
  nlohmann::json gemms;                      // a GemmTable; null: gemm_choice was heuristic
  std::optional<double> best_metric;
  std::optional<std::int64_t> best_step;
  std::int64_t evaluations_without_gain = 0;
  nlohmann::json log_history = nlohmann::json::array();
  Fingerprint fingerprint;    // empty: an earlier version saved none
  nlohmann::json task_state;  // state of the task besides; null: none

  friend bool operator==(const Progress&, const Progress&) = default;
};

// The content of a trainer_state.json.
std::string progress_text(const Progress& progress);

// Throws with the file and the key if something is missing, has the wrong type or is out of range.
Progress parse_progress(std::string_view text, const std::string& file);

}  // namespace mgpu::train
