#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mgpu::optim {

// The learning rate of every step. Names and formulas are those of transformers: step 0 is the
// first, and with a warm-up its rate is 0.
class Schedule {
 public:
  // Throws std::runtime_error for an unknown name, with the list of valid ones, and for a keyword
  // that the schedule does not accept. A `warmup` below 1 is a share of `total`.
  Schedule(const std::string& name, double peak, double warmup, std::int64_t total,
           const std::map<std::string, double>& keywords);

  double at(std::int64_t step) const;
  std::int64_t warmup_steps() const { return warmup_; }

  static const std::vector<std::string>& names();

 private:
  enum class Kind {
    linear,
    cosine,
    cosine_with_restarts,
    polynomial,
    constant,
    constant_with_warmup,
    inverse_sqrt,
    cosine_with_min_lr,
    cosine_warmup_with_min_lr,
    warmup_stable_decay
  };

  double factor(std::int64_t step) const;
  double progress(std::int64_t step) const;  // 0 at the end of the warm-up, 1 at the end
  double warmup_stable_decay(std::int64_t step) const;

  Kind kind_;
  double peak_;
  std::int64_t warmup_ = 0;
  std::int64_t total_;
  std::map<std::string, double> keywords_;
};

}  // namespace mgpu::optim
