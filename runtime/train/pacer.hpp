#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// Decides each rank's share of the work of every step (batch_sharding). `uniform` gives all ranks
// the same, `weighted` uses gpu_weights, and `adaptive` follows the measured speeds, smoothed and
// bounded. All ranks compute the same shares because all get the same measurements. The trainer's
// and the loader's threads may both call it.
class Pacer {
 public:
  // `given` is gpu_weights; `ahead` is the number of steps that the loader prepares in advance.
  Pacer(Sharding sharding, std::vector<double> given, int world, std::size_t ahead);

  // The ranks' weights for a step; empty: all ranks get the same share.
  std::vector<double> weights(std::int64_t step);

  // A line for the log with each rank's share of the step's work, or an empty string if no share
  // has changed by more than 5 % since the last line. Always empty with `uniform`.
  std::string shares_line(std::int64_t step);

  // Takes the times and costs of the ranks' shares of a finished step. They affect the weights from
  // step + ahead + 4 on, the first step that no rank's loader can have started on when its trainer
  // calls this for `step`: by then step + 1 runs, the trainer holds step + 2, `ahead` more steps
  // are ready, and the loader prepares the one after these.
  void record_times(std::int64_t step, const std::vector<double>& seconds,
                    const std::vector<double>& costs);

 private:
  static constexpr double kFastest = 2.0, kSlowest = 0.5, kSmoothing = 0.2, kReportedChange = 0.05;

  Sharding sharding_;
  std::size_t ahead_;
  std::mutex mutex_;
  std::vector<double> weights_, reported_;
  std::map<std::int64_t, std::vector<double>> from_step_;
};

}  // namespace mgpu::train
