#include "runtime/rl/meter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace mgpu::rl {
namespace {

void put_range(std::map<std::string, double>& metrics, const std::string& name,
               const std::vector<double>& lengths) {
  if (lengths.empty()) return;
  double sum = 0;
  for (const double length : lengths) sum += length;
  const auto [min, max] = std::minmax_element(lengths.begin(), lengths.end());
  metrics["completions/mean" + name] = sum / static_cast<double>(lengths.size());
  metrics["completions/min" + name] = *min;
  metrics["completions/max" + name] = *max;
}

struct HealthyRange {
  const char* name;
  double min, max;
  const char* advice;
};

constexpr HealthyRange kHealthyRanges[] = {
    {"frac_reward_zero_std", 0, .8,
     "in most groups all completions have the same reward, so they have no advantage; use easier "
     "or "
     "harder prompts, or raise num_generations"},
    {"frac_reward_missing", 0, .5,
     "no reward function gave these completions a score, so they are not trained on; check "
     "reward_funcs"},
    {"kl", -1e-3, .5,
     "the policy drifts away from the reference model; raise beta or lower learning_rate"},
    {"entropy", .05, 5, "the policy has become deterministic (low) or random (high)"},
    {"clip_ratio/region_mean", 0, .1, "updates are large; lower learning_rate or num_iterations"},
    {"sampling/sampling_logp_difference/mean", 0, .1,
     "the generating model and the trained model disagree on the same tokens"},
    {"completions/clipped_ratio", 0, .3,
     "many completions are truncated; raise max_completion_length"},
};

// What shows whether a run learns: metrics with their labels in the progress line.
struct MainMetric {
  const char* name;
  const char* label;
};

constexpr MainMetric kMainMetrics[] = {
    {"reward", "reward"}, {"kl", "kl"}, {"completions/mean_length", "length"}, {"HR@10", "HR@10"}};

bool is_main(const std::string& name) {
  return std::ranges::any_of(kMainMetrics, [&](const auto& main) { return name == main.name; });
}

std::vector<std::pair<std::string, double>> highlights_of(
    const std::map<std::string, double>& metrics) {
  std::vector<std::pair<std::string, double>> highlights;
  for (const auto& [name, label] : kMainMetrics)
    if (const auto found = metrics.find(name); found != metrics.end())
      highlights.emplace_back(label, found->second);
  return highlights;
}

}  // namespace

std::map<std::string, double> length_metrics(const std::vector<ScoredCompletion>& completions) {
  std::vector<double> lengths, terminated;
  for (const auto& completion : completions) {
    lengths.push_back(static_cast<double>(completion.tokens.size()));
    if (completion.terminated) terminated.push_back(lengths.back());
  }
  std::map<std::string, double> metrics;
  put_range(metrics, "_length", lengths);
  put_range(metrics, "_terminated_length", terminated);
  if (!completions.empty()) {
    const auto all = static_cast<double>(completions.size());
    metrics["completions/clipped_ratio"] = 1 - static_cast<double>(terminated.size()) / all;
  }
  return metrics;
}

std::vector<std::string> HealthWatch::warnings(const std::map<std::string, double>& metrics) {
  std::vector<std::string> lines;
  for (const auto& range : kHealthyRanges) {
    const auto found = metrics.find(range.name);
    if (found == metrics.end()) continue;
    if (found->second >= range.min && found->second <= range.max) {
      unhealthy_.erase(range.name);
      continue;
    }
    if (!unhealthy_.insert(range.name).second) continue;
    lines.push_back(
        fmt::format("warning: {} is {:.3g}; {}", range.name, found->second, range.advice));
  }
  return lines;
}

void Meter::add(const std::map<std::string, double>& metrics) {
  for (const auto& [name, value] : metrics) {
    if (std::isnan(value)) continue;
    means_[name].add(value);
    if (is_main(name)) run_means_[name].add(value);
  }
}

void Meter::add_step(const Step& step) {
  for (auto* sum : {&interval_, &whole_run_}) {
    sum->step = step.step;
    sum->total_steps = step.total_steps;
    sum->epoch = step.epoch;
    sum->learning_rate = step.learning_rate;
    sum->grad_norm = step.grad_norm;
    sum->comm_seconds += step.comm_seconds;
    sum->flops += step.flops;
    sum->rank_memory = step.rank_memory;
    sum->loss_scale = step.loss_scale;
    sum->examples += step.completions;
    sum->target_tokens += step.tokens;
    sum->tokens += step.tokens;
    ++sum->steps;
    if (step.skipped) ++sum->skipped;
  }
}

std::optional<Meter::Report> Meter::take_interval(std::int64_t tokens) {
  if (interval_.steps == 0) return {};
  Report report{.interval = std::exchange(interval_, {}), .warnings = {}};
  auto& interval = report.interval;
  for (const auto& [name, mean] : std::exchange(means_, {})) interval.extra[name] = mean.value();
  interval.extra["num_tokens"] = static_cast<double>(tokens);
  const auto loss = interval.extra.extract("loss");
  interval.loss = loss.empty() ? std::nan("") : loss.mapped();
  if (const auto steps = interval.steps - interval.skipped; steps > 0) {
    loss_.sum += *interval.loss * static_cast<double>(steps);
    loss_.number += steps;
  }
  interval.highlights = highlights_of(interval.extra);
  if (const auto reward = interval.extra.find("reward"); reward != interval.extra.end())
    last_reward_ = reward->second;
  report.warnings = health_.warnings(interval.extra);
  return report;
}

train::Interval Meter::whole_run() const {
  auto run = whole_run_;
  run.loss = loss_.number > 0 ? loss_.value() : 0;
  for (const auto& [name, mean] : run_means_) run.extra["train_" + name] = mean.value();
  if (last_reward_) run.extra["final_reward"] = *last_reward_;
  return run;
}

}  // namespace mgpu::rl
