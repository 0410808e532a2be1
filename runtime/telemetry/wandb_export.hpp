#pragma once

#include <cstdint>
#include <string>

#include "runtime/telemetry/output_file.hpp"
#include "runtime/telemetry/values.hpp"

namespace mgpu::telemetry {

// What wandb calls a run, and its project; empty: wandb chooses.
struct WandbRun {
  std::string name, project;
};

// Prepares a run for wandb without using wandb: wandb-history.jsonl has a line for every log call,
// and wandb-sync.py next to it uploads them. Never throws.
class WandbExport {
 public:
  // With `resume_step` > 0, continues the same wandb run after that step.
  WandbExport(const std::string& folder, const WandbRun& run, std::int64_t resume_step, double time,
              const ErrorCallback& on_error);

  void add(std::int64_t step, double epoch, const Values& values, double time);
  // A message for the user that explains how to upload.
  const std::string& upload_hint() const { return upload_hint_; }

 private:
  OutputFile history_;
  std::string upload_hint_;
};

// The Python program wandb-sync.py. If it is run again during training, it continues the wandb run
// with this id.
std::string wandb_sync_program(const std::string& id, const WandbRun& run);

}  // namespace mgpu::telemetry
