#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mgpu::telemetry {

inline constexpr double kGiB = 1 << 30;  // bytes

// A metric that the progress line shows after the loss.
struct Highlight {
  std::string label;
  double value = 0;
};

// Training progress since the previous report. The numbers are the same on every rank, so only rank
// 0 needs to make one.
struct StepReport {
  std::int64_t step = 0;         // the last completed step; the first step is 1
  std::int64_t total_steps = 0;  // 0: unknown
  double epoch = 0;
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;            // before clipping
  std::int64_t tokens = 0;         // of all ranks
  std::int64_t label_tokens = 0;   // target tokens: those that have a loss
  double seconds = 0;              // duration of these steps
  double flops = 0;                // useful operations, of all ranks
  double peak_tflops_per_gpu = 0;  // 0: unknown
  int world = 1;
  std::map<std::int64_t, std::int64_t> memory_by_gpu = {};  // peak bytes in use on each GPU
  std::int64_t memory_total = 0;                            // of one GPU
  double comm_share = -1;  // share of time, 0 to 1, with communication only; below 0: unknown
  std::int64_t skipped_steps = 0;   // in the whole run, because the gradient was not finite
  double loss_scale = 0;            // 0: the loss is not scaled
  bool loss_scale_changed = false;  // since the previous report
  std::map<std::string, double> extra = {};
  std::vector<Highlight> highlights = {};  // the most important first
};

// The bytes of the fullest GPU; 0 if there is none.
std::int64_t fullest(const std::map<std::int64_t, std::int64_t>& bytes_by_gpu);

// The rates of a report; 0 if the report has too little information.
struct Rates {
  double tokens_per_second = 0;  // of all ranks together
  double label_tokens_per_second = 0;
  double tflops_per_gpu = 0;
  double mfu = 0;  // 0 to 1
};
Rates rates_of(const StepReport& report);

// A part of the way from the start of the process to the end of its first step. Parts may overlap.
struct StartPart {
  std::string name;
  double begin = 0, end = 0;  // seconds since the process started
};

struct StartReport {
  double seconds = 0;  // from the start of the process to the end of its first step
  std::vector<StartPart> parts = {};
};

// A checkpoint that is complete.
struct CheckpointReport {
  std::int64_t step = 0;
  bool in_background = false;  // it was written while training continued
  double stalled_seconds = 0;  // how long training stood still
  double seconds = 0;          // until it was complete
};

// The summary at the end of a run. Unknown values (0, where noted) are not reported.
struct Summary {
  std::int64_t step = 0;
  double epoch = 0;
  double train_loss = 0;     // the mean over the steps of this run
  double train_runtime = 0;  // seconds
  std::int64_t samples = 0;  // rows that this run trained on, including repeats
  std::int64_t steps = 0;    // of this run, without steps before it was resumed
  std::int64_t tokens = 0;
  std::int64_t label_tokens = 0;
  double total_flos = 0;           // including steps before the run was resumed
  double peak_tflops_per_gpu = 0;  // 0: unknown
  double flops = 0;                // of this run
  int world = 1;
  std::map<std::int64_t, std::int64_t> peak_memory_by_gpu = {};
  std::int64_t planned_memory_bytes = 0;  // the planner's prediction for the fullest; 0: none
  std::int64_t skipped_steps = 0;
  std::map<std::string, double> extra = {};
};

}  // namespace mgpu::telemetry
