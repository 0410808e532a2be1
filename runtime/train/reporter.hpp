#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/train/config.hpp"
#include "runtime/train/step_record.hpp"

namespace mgpu::train {

// What one logged interval came to.
struct Interval {
  std::int64_t step = 0, total_steps = 0;
  double epoch = 0, learning_rate = 0, grad_norm = 0;
  double loss_sum = 0, correct = 0, entropy_sum = 0;
  std::int64_t labels = 0, tokens = 0, examples = 0, steps = 0, skipped = 0;
  double comm_seconds = 0;
};

// Tells people, and files for people, how training goes. Rank 0 speaks; the others are silent.
class Reporter {
 public:
  struct Facts {
    int rank = 0, world = 1;
    double flops_per_token = 0;
    std::string device_name;
    at::Device device = at::kCPU;
    std::int64_t first_step = 0;  // that this run takes
  };

  Reporter(const TrainConfig& config, Facts facts);
  ~Reporter();

  void note(const std::string& line);
  // Gives the entry for log_history.
  nlohmann::json interval(const Interval& interval);
  nlohmann::json evaluation(std::int64_t step, double epoch,
                            const std::map<std::string, double>& metrics);
  void summary(const Interval& whole_run, const std::string& where);

 private:
  struct Sinks;
  Facts facts_;
  std::chrono::steady_clock::time_point begin_, last_;
  std::unique_ptr<Sinks> sinks_;
};

}  // namespace mgpu::train
