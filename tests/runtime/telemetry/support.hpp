#pragma once

#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/telemetry/report.hpp"

namespace mgpu::tests {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::vector<nlohmann::json> json_lines(const std::string& path) {
  std::vector<nlohmann::json> all;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

// A report of two GPUs, each at half of an H100's peak.
inline telemetry::StepReport report_at(std::int64_t step) {
  return {.step = step,
          .total_steps = 400,
          .epoch = static_cast<double>(step) / 100,
          .loss = 2.0 / static_cast<double>(step),
          .learning_rate = 2e-5,
          .grad_norm = 0.5,
          .tokens = 40000,
          .label_tokens = 10000,
          .seconds = 2,
          .flops = 4 * 494.5e12,
          .peak_tflops_per_gpu = 989,
          .world = 2,
          .memory_by_gpu = {{0, 61ll << 30}},
          .memory_total = 80ll << 30,
          .comm_share = 0.08};
}

}  // namespace mgpu::tests
