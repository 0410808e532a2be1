#include "launcher/memory/gpu_sampler.hpp"

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

constexpr int kSlowSamples = 2;  // before a slow clock is reported

}  // namespace

GpuSample GpuSampler::take(int attempt, std::chrono::duration<double> time) {
  if (std::exchange(attempt_, attempt) != attempt)
    for (auto& [gpu, history] : histories_) history.trend.clear();
  GpuSample sample{.gpus = gpus_.read(), .warnings = {}};
  for (const auto& reading : sample.gpus) {
    auto& history = histories_[reading.gpu];
    const auto& memory = reading.memory;
    if (const auto warning = history.trend.add({time, memory.used, memory.total})) {
      const auto holders = holders_text(gpus_.holders(reading.gpu));
      sample.warnings.push_back(fmt::format("GPU {}: {}{}{}", reading.gpu, warning->text(),
                                            holders.empty() ? "" : "; ", holders));
    }
    const auto reason = slowdown_text(reading.activity.slowdown);
    history.slow_samples = reason.empty() ? 0 : history.slow_samples + 1;
    if (history.slow_samples >= kSlowSamples && !std::exchange(history.slowdown_reported, true))
      sample.warnings.push_back(fmt::format("GPU {} ({} °C) runs at a reduced clock because of {}",
                                            reading.gpu, reading.activity.temperature, reason));
  }
  return sample;
}

}  // namespace mgpu::launcher
