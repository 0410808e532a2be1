#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/telemetry/report.hpp"
#include "runtime/train/step_record.hpp"

namespace mgpu::train {

// The sums and values of one logged interval of steps.
struct Interval {
  std::int64_t step = 0, total_steps = 0;
  double epoch = 0, learning_rate = 0, grad_norm = 0;
  double loss_sum = 0, correct = 0, entropy_sum = 0;
  std::int64_t target_tokens = 0, tokens = 0, examples = 0, steps = 0, skipped = 0;
  double comm_seconds = 0;
  double flops = 0;                            // useful operations of all ranks
  double loss_scale = 0;                       // after the steps; 0: the loss is not scaled
  std::vector<std::int64_t> rank_memory = {};  // peak bytes on each rank's device so far
  // For tasks that measure something else: their loss, and named numbers that replace accuracy and
  // entropy.
  std::optional<double> loss = {};
  std::map<std::string, double> extra = {};
  // Names and values that the progress line shows, the most important first.
  std::vector<std::pair<std::string, double>> highlights = {};
};

// Reports training to the terminal, to metrics.jsonl and to the tools in report_to. Only rank 0
// writes; the other ranks print nothing.
class Reporter {
 public:
  struct Facts {
    int rank = 0, world = 1;
    std::string device_name;
    at::Device device = at::kCPU;
    std::int64_t first_step = 0;     // the first step of this run
    std::string log_history;         // of the checkpoint that this run resumes from
    std::int64_t planned_bytes = 0;  // the planner's estimate for the fullest GPU; 0: unknown
    // The number of each rank's GPU on its node; empty: rank i has GPU i.
    std::vector<std::int64_t> rank_gpus = {};
    std::vector<at::Device> other_devices = {};  // that this rank uses beside its own
  };

  Reporter(const TrainConfig& config, Facts facts);
  ~Reporter();

  void note(const std::string& line);
  void start(std::int64_t step, const telemetry::StartReport& report);
  void checkpoint(const telemetry::CheckpointReport& report);
  void interval(const Interval& interval);
  void evaluation(std::int64_t step, double epoch, const std::map<std::string, double>& metrics);
  void summary(const Interval& whole_run);
  void status(const std::string& json);  // replaces training_status.json

  std::string log_history() const;  // a JSON array, for trainer_state.json

 private:
  using Clock = std::chrono::steady_clock;
  struct Sinks;

  static double since(Clock::time_point& from);  // seconds since `from`, which becomes now
  std::map<std::int64_t, std::int64_t> memory_by_gpu(const Interval& interval) const;

  Facts facts_;
  Clock::time_point begin_, last_;
  std::int64_t skipped_ = 0;
  double loss_scale_ = 0;  // of the last report
  std::unique_ptr<Sinks> sinks_;
};

}  // namespace mgpu::train
