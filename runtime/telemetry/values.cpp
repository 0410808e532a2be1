#include "runtime/telemetry/values.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

namespace mgpu::telemetry {
namespace {

// The names that measured_values uses.
constexpr std::array<std::string_view, 12> kMeasured = {"tokens",
                                                        "label_tokens",
                                                        "seconds",
                                                        "tokens_per_second",
                                                        "tokens_per_second_per_gpu",
                                                        "label_tokens_per_second",
                                                        "tflops_per_gpu",
                                                        "mfu",
                                                        "memory_bytes",
                                                        "memory_total",
                                                        "comm_share",
                                                        "skipped_steps"};

double rounded(double value, double places) {
  const double scale = std::pow(10, places);
  return std::round(value * scale) / scale;
}

void add_rates(Values& values, const Summary& summary) {
  const double seconds = summary.train_runtime;
  if (!(seconds > 0)) return;
  const auto add = [&](const char* name, std::int64_t count) {
    values[name] = rounded(static_cast<double>(count) / seconds, 3);
  };
  add("train_samples_per_second", summary.samples);
  add("train_steps_per_second", summary.steps);
  add("train_tokens_per_second", summary.tokens);
  add("train_label_tokens_per_second", summary.label_tokens);
  if (!(summary.flops > 0) || summary.world <= 0) return;
  const double tflops = summary.flops / seconds / summary.world / 1e12;
  values["train_tflops_per_gpu"] = tflops;
  if (summary.peak_tflops_per_gpu > 0) values["train_mfu"] = tflops / summary.peak_tflops_per_gpu;
}

// The fullest GPU's memory under `name`, and each GPU's under name/number if there are several.
void add_memory(Values& values, const std::string& name,
                const std::map<std::int64_t, std::int64_t>& bytes_by_gpu) {
  if (const auto most = fullest(bytes_by_gpu); most > 0) values[name] = most;
  if (bytes_by_gpu.size() < 2) return;
  for (const auto& [gpu, bytes] : bytes_by_gpu) values[fmt::format("{}/{}", name, gpu)] = bytes;
}

}  // namespace

std::int64_t fullest(const std::map<std::int64_t, std::int64_t>& bytes_by_gpu) {
  std::int64_t most = 0;
  for (const auto& [gpu, bytes] : bytes_by_gpu) most = std::max(most, bytes);
  return most;
}

Values logged_values(const StepReport& report) {
  Values values = {{"loss", report.loss},
                   {"grad_norm", report.grad_norm},
                   {"learning_rate", report.learning_rate}};
  if (report.loss_scale > 0) values["loss_scale"] = report.loss_scale;
  values.insert(report.extra.begin(), report.extra.end());
  return values;
}

Values measured_values(const StepReport& report) {
  const Rates rates = rates_of(report);
  Values values = {{"tokens", report.tokens},
                   {"label_tokens", report.label_tokens},
                   {"seconds", report.seconds},
                   {"skipped_steps", report.skipped_steps}};
  if (report.seconds > 0) {
    values["tokens_per_second"] = rates.tokens_per_second;
    values["tokens_per_second_per_gpu"] = rates.tokens_per_second / std::max(report.world, 1);
    values["label_tokens_per_second"] = rates.label_tokens_per_second;
  }
  if (rates.tflops_per_gpu > 0) values["tflops_per_gpu"] = rates.tflops_per_gpu;
  if (rates.mfu > 0) values["mfu"] = rates.mfu;
  add_memory(values, "memory_bytes", report.memory_by_gpu);
  if (report.memory_total > 0) values["memory_total"] = report.memory_total;
  if (report.comm_share >= 0) values["comm_share"] = report.comm_share;
  return values;
}

bool is_measured(const std::string& name) {
  return name.starts_with("memory_bytes/") ||
         std::find(kMeasured.begin(), kMeasured.end(), name) != kMeasured.end();
}

Values eval_values(const Values& metrics) {
  Values values;
  for (const auto& [name, value] : metrics)
    values[name.starts_with("eval_") ? name : "eval_" + name] = value;
  return values;
}

Values summary_values(const Summary& summary) {
  Values values = {
      {"epoch", summary.epoch},           {"total_flos", summary.total_flos},
      {"train_loss", summary.train_loss}, {"train_runtime", rounded(summary.train_runtime, 4)},
      {"train_samples", summary.samples}, {"skipped_steps", summary.skipped_steps}};
  add_rates(values, summary);
  add_memory(values, "peak_memory_bytes", summary.peak_memory_by_gpu);
  if (summary.planned_memory_bytes > 0)
    values["planned_memory_bytes"] = summary.planned_memory_bytes;
  values.insert(summary.extra.begin(), summary.extra.end());
  return values;
}

std::string tag_of(const std::string& name) {
  for (const std::string_view split : {"eval", "test"})
    if (name.starts_with(split) && name.substr(split.size()).starts_with("_"))
      return std::string(split) + "/" + name.substr(split.size() + 1);
  return "train/" + name;
}

}  // namespace mgpu::telemetry
