#pragma once

#include <cstdint>
#include <string>

#include "runtime/telemetry/output_file.hpp"
#include "runtime/telemetry/values.hpp"

namespace mgpu::telemetry {

// A run for wandb, without wandb: wandb-history.jsonl with a line for each time something was
// logged, and beside it wandb-sync.py, which sends them. Never throws.
class WandbExport {
 public:
  // `resume_step` > 0 goes on behind that step, in the same wandb run.
  WandbExport(const std::string& folder, const std::string& run_name, std::int64_t resume_step,
              double time, const Complain& complain);

  void add(std::int64_t step, double epoch, const Values& values, double time);
  // What to tell a person.
  const std::string& advice() const { return advice_; }

 private:
  OutputFile history_;
  std::string advice_;
};

// The Python program. Started again while a run goes on, it continues the wandb run of this id.
std::string wandb_sync_program(const std::string& id, const std::string& run_name);

}  // namespace mgpu::telemetry
