#include "runtime/train/step_trace.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>

#include "runtime/checkpoint/file.hpp"
#include "runtime/profiling/range_log.hpp"
#include "runtime/train/device.hpp"

namespace mgpu::train {

StepTrace::StepTrace(std::vector<std::int64_t> steps, std::string folder, int rank, int world,
                     at::Device device, Note note)
    : steps_(std::move(steps)),
      path_((std::filesystem::path(folder) / fmt::format("rank{}.json", rank)).string()),
      device_(device),
      note_(std::move(note)),
      facts_{.rank = rank, .world = world, .main_thread = ::gettid()} {}

StepTrace::~StepTrace() {
  if (records_) profiling::stop_range_log();
}

void StepTrace::step_begins(std::int64_t step) {
  if (!std::ranges::binary_search(steps_, step)) return;
  if (!records_) start();
  profiling::begin_step_in_range_log(step);
}

void StepTrace::step_ends(std::int64_t step) {
  if (!records_ || std::ranges::binary_search(steps_, step + 1)) return;
  stop();
  if (step >= steps_.back()) write();
}

void StepTrace::finish() {
  if (records_) stop();
  if (recorded_) write();
}

void StepTrace::start() {
  wait_for(device_);  // the GPU's work of earlier steps is not part of the trace
  if (device_.is_cuda()) try {
      gpu_ = std::make_unique<profiling::GpuActivity>();
    } catch (const std::exception& e) {
      note_(fmt::format("trace_steps: the trace has no GPU activity: {}", e.what()));
    }
  profiling::start_range_log();
  records_ = true;
}

void StepTrace::stop() {
  wait_for(device_);
  records_ = false;
  recorded_ = true;
  auto ranges = profiling::stop_range_log();
  spans_.insert(spans_.end(), ranges.begin(), ranges.end());
  if (!gpu_) return;
  try {
    const auto activity = gpu_->stop();
    spans_.insert(spans_.end(), activity.begin(), activity.end());
    if (activity.empty())
      note_("trace_steps: the trace has no GPU activity; is another profiler attached?");
  } catch (const std::exception& e) {
    note_(fmt::format("trace_steps: the trace has no GPU activity: {}", e.what()));
  }
  gpu_.reset();
}

void StepTrace::write() {
  recorded_ = false;
  try {
    checkpoint::write_file(path_, profiling::chrome_trace(std::move(spans_), facts_));
    note_("wrote the trace " + path_);
  } catch (const std::exception& e) {
    note_(fmt::format("trace_steps: {}", e.what()));
  }
}

}  // namespace mgpu::train
