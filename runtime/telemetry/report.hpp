#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace mgpu::telemetry {

// What training did since the report before it; the same numbers whoever counts, so only rank 0
// needs to make one.
struct StepReport {
  std::int64_t step = 0;         // the last step that is done; the first one is 1
  std::int64_t total_steps = 0;  // 0: not known
  double epoch = 0;
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;            // before clipping
  std::int64_t tokens = 0;         // of all ranks
  std::int64_t label_tokens = 0;   // those that have a loss
  double seconds = 0;              // how long these steps took
  double flops = 0;                // useful ones, of all ranks
  double peak_tflops_per_gpu = 0;  // 0: not known
  int world = 1;
  std::int64_t memory_bytes = 0;  // the most in use on the fullest GPU
  std::int64_t memory_total = 0;
  double comm_share = -1;          // of the time, 0 to 1, that nothing but communication ran
  std::int64_t skipped_steps = 0;  // in the whole run, for a gradient that was not finite
  std::map<std::string, double> extra = {};
};

// Rates of a report; 0 where the report does not tell enough.
struct Rates {
  double tokens_per_second = 0;  // of all ranks together
  double label_tokens_per_second = 0;
  double tflops_per_gpu = 0;
  double mfu = 0;  // 0 to 1
};
Rates rates_of(const StepReport& report);

// How a run went, for its end. What is 0 and says so is not known and not told.
struct Summary {
  std::int64_t step = 0;
  double epoch = 0;
  double train_loss = 0;     // the mean over the steps of this run
  double train_runtime = 0;  // seconds
  std::int64_t samples = 0;  // rows that this run trained on, repeats counted
  std::int64_t steps = 0;    // of this run, without those before it was resumed
  std::int64_t tokens = 0;
  std::int64_t label_tokens = 0;
  double total_flos = 0;           // with those before the run was resumed
  double peak_tflops_per_gpu = 0;  // 0: not known
  double flops = 0;                // of this run
  int world = 1;
  std::int64_t peak_memory_bytes = 0;     // 0: not known
  std::int64_t planned_memory_bytes = 0;  // what the planner had expected; 0: it was not asked
  std::int64_t skipped_steps = 0;
  std::map<std::string, double> extra = {};
};

}  // namespace mgpu::telemetry
