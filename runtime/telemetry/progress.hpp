#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/telemetry/report.hpp"

namespace mgpu::telemetry {

// What follows from a report only with those before it.
struct Outlook {
  bool spike = false;      // the gradient norm is over five times its moving average
  double eta_seconds = 0;  // until the last step; below 0: not known
};

// Watches the reports of a run go by.
class Pace {
 public:
  explicit Pace(std::int64_t steps_done = 0) : last_step_(steps_done) {}
  Outlook next(const StepReport& report);

 private:
  std::int64_t last_step_;
  int reports_ = 0;
  double step_seconds_ = 0;  // moving averages
  double norm_ = 0;
};

// One line about a report, at most `width` columns wide (0: as wide as it gets): what matters
// least is left out first. Colours are escape sequences, which take no columns.
std::string progress_line(const StepReport& report, const Outlook& outlook, std::size_t width = 0,
                          bool colour = false);

// "842", "37.2k", "1.25M".
std::string short_count(double number);
// "59s", "12m05s", "3h20m", "2d04h".
std::string short_time(double seconds);

}  // namespace mgpu::telemetry
