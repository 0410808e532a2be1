#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/lifecycle/step_times.hpp"
#include "launcher/memory/sampler.hpp"
#include "launcher/options/options.hpp"
#include "launcher/output/file_thread.hpp"
#include "launcher/plan/job_plan.hpp"

namespace mgpu::launcher {

// The note of a single-node job for `mgpu-run status`, which has no leader that could be queried.
class StatusNote {
 public:
  StatusNote(FileThread& files, const Options& options, const Placement& placement,
             std::string host);

  // Writes the note if it has changed. `attempt` counts from 0.
  void show(std::string_view state, int attempt, const std::vector<RankProgress>& progress);
  // Writes the note with the memory of ranks and GPUs.
  void show_memory(const SampleRequest& request, const MemorySample& sample);
  void remove();

 private:
  void write();

  FileThread& files_;
  const Options& options_;
  const Placement& placement_;
  std::string host_;
  std::string state_;
  int attempt_ = -1;
  std::int64_t since_ = 0;  // when they last changed
  std::vector<RankProgress> progress_;
  std::optional<std::pair<SampleRequest, MemorySample>> memory_;  // the attempt's newest
};

}  // namespace mgpu::launcher
