#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/rl/generation.hpp"
#include "runtime/train/reporter.hpp"

namespace mgpu::rl {

// TRL's metrics of completion lengths, over a whole generation.
std::map<std::string, double> length_metrics(const std::vector<ScoredCompletion>& completions);

// Warns when a metric leaves the range of healthy training. It repeats a warning only after the
// metric was back in its range.
class HealthWatch {
 public:
  std::vector<std::string> warnings(const std::map<std::string, double>& metrics);

 private:
  std::set<std::string> unhealthy_;
};

// Sums what the steps of a run measure, and makes of it what is reported: intervals of steps, with
// the mean of every metric, and a summary of the whole run. Both name reward, divergence and length
// of the completions for the terminal. It writes nothing itself.
class Meter {
 public:
  struct Step {
    std::int64_t step = 0, total_steps = 0;  // `step` counts this one
    double epoch = 0, learning_rate = 0, grad_norm = 0;
    double comm_seconds = 0;                     // mean of the ranks
    double flops = 0;                            // of the update, of all ranks
    std::int64_t completions = 0, tokens = 0;    // tokens in the loss
    bool skipped = false;                        // nothing was updated
    double loss_scale = 0;                       // see train::Interval
    std::vector<std::int64_t> rank_memory = {};  // see train::Interval
  };
  struct Report {
    train::Interval interval;
    std::vector<std::string> warnings;
  };

  // Metrics of a step or a generation. NaN is ignored: the metric has no value.
  void add(const std::map<std::string, double>& metrics);
  void add_step(const Step& step);

  // What was added since the last interval; empty if that is no step. `tokens`: num_tokens, of the
  // run so far.
  std::optional<Report> take_interval(std::int64_t tokens);
  train::Interval whole_run() const;

 private:
  struct Mean {
    double sum = 0;
    std::int64_t number = 0;

    void add(double one) {
      sum += one;
      ++number;
    }
    double value() const { return sum / static_cast<double>(number); }
  };

  train::Interval interval_, whole_run_;
  std::map<std::string, Mean> means_;      // since the last interval
  std::map<std::string, Mean> run_means_;  // of the metrics that the summary has
  std::optional<double> last_reward_;      // of the last interval that has one
  Mean loss_;                              // of the steps of all intervals
  HealthWatch health_;
};

}  // namespace mgpu::rl
