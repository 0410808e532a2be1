#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/profiling/chrome_trace.hpp"
#include "runtime/profiling/gpu_activity.hpp"
#include "runtime/profiling/span.hpp"

namespace mgpu::train {

// Records chosen steps of this rank and writes them into one Chrome trace, when the last of them is
// over. The file is complete or is not there at all. An error becomes a note and never stops the
// run.
class StepTrace {
 public:
  using Note = std::function<void(const std::string&)>;

  // `steps` (counted from 1, ascending) are those that are still to come.
  StepTrace(std::vector<std::int64_t> steps, std::string folder, int rank, int world,
            at::Device device, Note note);
  ~StepTrace();

  void step_begins(std::int64_t step);
  void step_ends(std::int64_t step);
  // Writes what was recorded if training ends before the last of the chosen steps.
  void finish();

 private:
  void start();
  void stop();
  void write();

  std::vector<std::int64_t> steps_;
  std::string path_;
  at::Device device_;
  Note note_;
  std::unique_ptr<profiling::GpuActivity> gpu_;
  std::vector<profiling::Span> spans_;
  profiling::TraceFacts facts_;
  bool records_ = false, recorded_ = false;
};

}  // namespace mgpu::train
