#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// How fast the ranks are against each other, step by step, for whoever spreads the work. With
// `adaptive` it follows the measured times: smoothed, bounded, and known to all ranks alike because
// the times are. Called by the trainer's thread and by the loader's.
class Pacer {
 public:
  // `given` are gpu_weights; `ahead` is how many steps the loader prepares early.
  Pacer(Sharding sharding, std::vector<double> given, int world, std::size_t ahead);

  // What the step's work is spread by; empty: all alike.
  std::vector<double> weights(std::int64_t step);

  // Each rank's share of the step's work, as a line, when it is another than was told last by more
  // than a twentieth; else empty. Nothing is told of work that is spread alike.
  std::string shares_line(std::int64_t step);

  // Times and shares of a step that has ended. They act on step + ahead + 4, the first that no
  // rank's loader can have begun when its trainer knows them: that is one step behind the one under
  // way, behind which one is taken, `ahead` lie ready and one is in the loader's hands.
  void record_times(std::int64_t step, const std::vector<double>& seconds,
                    const std::vector<double>& costs);

 private:
  static constexpr double kFastest = 2.0, kSlowest = 0.5, kSmoothing = 0.2, kReportedChange = 0.05;

  Sharding sharding_;
  std::size_t ahead_;
  std::mutex mutex_;
  std::vector<double> now_, reported_;
  std::map<std::int64_t, std::vector<double>> from_step_;
};

}  // namespace mgpu::train
