#include "runtime/profiling/gpu_activity.hpp"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <exception>
#include <set>

namespace mgpu::profiling {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

}  // namespace

GpuActivity::GpuActivity() {
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  // Without the host's operators: the ranges show what the host does, and the file stays small.
  const std::set activities{ActivityType::CUDA};
  kineto::prepareProfiler(config, activities);
  kineto::enableProfiler(config, activities);
  running_ = true;
}

GpuActivity::~GpuActivity() {
  if (!running_) return;
  try {
    kineto::disableProfiler();
  } catch (const std::exception&) {
    // What it recorded is not needed.
  }
}

std::vector<Span> GpuActivity::stop() {
  running_ = false;
  const auto result = kineto::disableProfiler();
  std::vector<Span> spans;
  for (const auto& event : result->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;  // the host's calls of CUDA
    const auto begin = static_cast<std::int64_t>(event.startNs());
    spans.push_back({.name = event.name(),
                     .begin_ns = begin,
                     .end_ns = begin + static_cast<std::int64_t>(event.durationNs()),
                     .gpu = event.deviceIndex(),
                     .stream = event.deviceResourceId()});
  }
  return spans;
}

}  // namespace mgpu::profiling
