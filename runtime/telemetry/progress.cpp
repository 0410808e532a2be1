#include "runtime/telemetry/progress.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include <fmt/format.h>

namespace mgpu::telemetry {
namespace {

constexpr double kSpike = 5;
constexpr int kReportsBeforeSpikes = 3;  // the norms of the first steps are not typical
constexpr double kWeight = 0.1;          // weight of the newest value in a moving average

constexpr const char* kBold = "\033[1m";
constexpr const char* kRed = "\033[1;31m";
constexpr const char* kDim = "\033[2m";
constexpr const char* kPlain = "\033[0m";

void move_average(double& average, double value, bool first) {
  average = first ? value : average + kWeight * (value - average);
}

// A part of the line. If the line is too long, the part with the highest rank is left out first, of
// equal ones the last.
struct Part {
  int rank;
  std::string text;
  const char* colour = nullptr;
};

std::string number_text(double value) {
  const double size = std::fabs(value);
  if (value == 0 || (size >= 1e-3 && size < 1e5)) return fmt::format("{:.4f}", value);
  return fmt::format("{:.3e}", value);
}

// Three significant digits, never in exponential notation.
std::string three_digits(double value) {
  const int places = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}", value, places);
}

std::string step_text(const StepReport& report) {
  if (report.total_steps <= 0) return fmt::format("step {}", report.step);
  const double share = static_cast<double>(report.step) / static_cast<double>(report.total_steps);
  return fmt::format("step {}/{} {:.0f}%", report.step, report.total_steps,
                     std::floor(100 * share));
}

std::string memory_text(const StepReport& report) {
  const double used = static_cast<double>(fullest(report.memory_by_gpu)) / kGiB;
  if (report.memory_total <= 0) return fmt::format("mem {} GiB", three_digits(used));
  return fmt::format("mem {}/{} GiB", three_digits(used),
                     three_digits(static_cast<double>(report.memory_total) / kGiB));
}

std::vector<Part> parts_of(const StepReport& report, const ProgressEstimate& estimate) {
  const Rates rates = rates_of(report);
  const bool alarm = estimate.spike || !std::isfinite(report.grad_norm);
  std::vector<Part> parts = {
      {0, step_text(report)},
      {11, fmt::format("epoch {:.2f}", report.epoch), kDim},
      {1, "loss " + number_text(report.loss), std::isfinite(report.loss) ? kBold : kRed}};
  for (const auto& [label, value] : report.highlights)
    parts.push_back({2, fmt::format("{} {:.4g}", label, value), kBold});
  parts.insert(parts.end(),
               {{7, fmt::format("lr {:.2e}", report.learning_rate)},
                {4, fmt::format("norm {}{}", number_text(report.grad_norm), alarm ? "!" : ""),
                 alarm ? kRed : nullptr}});
  if (report.seconds > 0) {
    parts.push_back({3, short_count(rates.tokens_per_second) + " tok/s"});
    if (report.label_tokens != report.tokens)
      parts.push_back({10, short_count(rates.label_tokens_per_second) + " target tok/s", kDim});
  }
  if (rates.tflops_per_gpu > 0)
    parts.push_back({6, three_digits(rates.tflops_per_gpu) + " TFLOP/s/GPU"});
  if (rates.mfu > 0) parts.push_back({8, fmt::format("MFU {:.1f}%", 100 * rates.mfu)});
  if (!report.memory_by_gpu.empty()) parts.push_back({5, memory_text(report)});
  if (report.comm_share >= 0)
    parts.push_back({9, fmt::format("comm {:.0f}%", 100 * report.comm_share)});
  if (report.loss_scale_changed)
    parts.push_back({2, fmt::format("loss scale {}", report.loss_scale), kBold});
  if (report.skipped_steps > 0)
    parts.push_back({2, fmt::format("skipped {}", report.skipped_steps), kRed});
  if (estimate.eta_seconds >= 0) parts.push_back({2, "eta " + short_time(estimate.eta_seconds)});
  return parts;
}

std::size_t width_of(const std::vector<Part>& parts) {
  std::size_t width = 0;
  for (const auto& part : parts) width += part.text.size() + 2;
  return width - 2;
}

}  // namespace

ProgressEstimate ProgressEstimator::update(const StepReport& report) {
  ProgressEstimate estimate{.eta_seconds = -1};
  if (std::isfinite(report.grad_norm)) {
    estimate.spike = reports_ >= kReportsBeforeSpikes && report.grad_norm > kSpike * norm_;
    move_average(norm_, report.grad_norm, reports_ == 0);
    ++reports_;
  }
  const auto steps = report.step - last_step_;
  if (steps > 0 && report.seconds > 0)
    move_average(step_seconds_, report.seconds / static_cast<double>(steps), step_seconds_ == 0);
  if (steps > 0) last_step_ = report.step;
  if (report.total_steps > 0 && step_seconds_ > 0)
    estimate.eta_seconds = step_seconds_ * static_cast<double>(std::max<std::int64_t>(
                                               0, report.total_steps - report.step));
  return estimate;
}

std::string progress_line(const StepReport& report, const ProgressEstimate& estimate,
                          std::size_t width, bool colour) {
  auto parts = parts_of(report, estimate);
  const auto by_rank = [](const Part& a, const Part& b) { return a.rank < b.rank; };
  while (width > 0 && parts.size() > 1 && width_of(parts) > width)
    parts.erase(std::next(std::max_element(parts.rbegin(), parts.rend(), by_rank)).base());
  if (width > 0 && parts.front().text.size() > width) parts.front().text.resize(width);
  std::string line;
  for (const auto& part : parts) {
    if (!line.empty()) line += "  ";
    const bool coloured = colour && part.colour;
    if (coloured) line += part.colour;
    line += part.text;
    if (coloured) line += kPlain;
  }
  return line;
}

std::string short_count(double value) {
  if (!std::isfinite(value)) return "-";
  for (const auto& [size, letter] : {std::pair(1e9, 'G'), {1e6, 'M'}, {1e3, 'k'}})
    if (value >= 0.9995 * size) return three_digits(value / size) + letter;
  return fmt::format("{:.0f}", value);
}

std::string short_time(double seconds) {
  constexpr std::int64_t kMinute = 60, kHour = 3600, kDay = 86400;
  if (!std::isfinite(seconds) || seconds > 1e12) return "-";
  const auto all = std::llround(std::max(seconds, 0.0));
  if (all < kMinute) return fmt::format("{}s", all);
  if (all < kHour) return fmt::format("{}m{:02}s", all / kMinute, all % kMinute);
  if (all < kDay) return fmt::format("{}h{:02}m", all / kHour, all % kHour / kMinute);
  return fmt::format("{}d{:02}h", all / kDay, all % kDay / kHour);
}

}  // namespace mgpu::telemetry
