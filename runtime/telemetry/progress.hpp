#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/telemetry/report.hpp"

namespace mgpu::telemetry {

// Estimates that need the earlier reports too.
struct ProgressEstimate {
  bool spike = false;      // the gradient norm is over five times its moving average
  double eta_seconds = 0;  // until the last step; below 0: unknown
};

// Computes the estimates from the reports of a run, in order.
class ProgressEstimator {
 public:
  explicit ProgressEstimator(std::int64_t steps_done = 0) : last_step_(steps_done) {}
  ProgressEstimate update(const StepReport& report);

 private:
  std::int64_t last_step_;
  int reports_ = 0;
  double step_seconds_ = 0;  // moving averages
  double norm_ = 0;
};

// One line for a report, at most `width` columns wide (0: no limit): the least important parts are
// left out first. Colors are escape sequences, which take no columns.
std::string progress_line(const StepReport& report, const ProgressEstimate& estimate,
                          std::size_t width = 0, bool colour = false);

// "842", "37.2k", "1.25M".
std::string short_count(double number);
// "59s", "12m05s", "3h20m", "2d04h".
std::string short_time(double seconds);

}  // namespace mgpu::telemetry
