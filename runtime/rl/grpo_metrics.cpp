// The metrics of a step, and their reports.
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cmath>
#include <span>
#include <stdexcept>

#include "runtime/rl/grpo_trainer.hpp"

namespace mgpu::rl {

// Records the results of a step.
void GrpoTrainer::consume_record(train::StepRecord& record, grpo::LossMetrics& metrics,
                                 const std::vector<MicroBatch>& micro_batches,
                                 const grpo::LossSettings& loss, double rate) {
  comm_->all_reduce(metrics.sums, "sums of the loss").wait();
  const auto every = at::empty({comm_->world(), metrics.maxima.numel()}, metrics.maxima.options());
  comm_->all_gather(every.view({-1}), metrics.maxima, "extremes of the loss").wait();
  const auto sums = metrics.sums.cpu(), maxima = every.amax({0}).cpu();
  const auto span = [](const at::Tensor& t) {
    return std::span(t.const_data_ptr<double>(), static_cast<std::size_t>(t.numel()));
  };
  auto values = grpo::metric_values(loss, span(sums), span(maxima));
  const auto outcome = record.outcome(progress_.step);
  stop_requested_ = stop_requested_ || outcome.stop_requested;
  save_requested_ = save_requested_ || outcome.save_requested;
  control_.adapt(values);
  const auto& by = micro_batches.front().denominators;
  for (auto* sum : {&interval_, &whole_run_}) {
    sum->step = progress_.step + 1;
    sum->total_steps = total_steps_;
    sum->learning_rate = rate;
    sum->grad_norm = outcome.grad_norm;
    sum->comm_seconds += outcome.comm_seconds / contract_.world_size;
    sum->examples += by.completions;
    sum->target_tokens += by.tokens;
    sum->tokens += by.tokens;
    ++sum->steps;
    if (outcome.skipped) ++sum->skipped;
  }
  if (outcome.skipped) {
    const auto text = fmt::format("step {}: the gradient is not finite", progress_.step + 1);
    if (config_.on_non_finite == train::NonFinite::stop)
      throw std::runtime_error(text +
                               "; the weights are unchanged by this step. Lower "
                               "learning_rate or check the rewards");
    reporter_->note(text + "; the step is skipped");
    values.erase("loss");
  }
  add_metrics(std::move(values));
}

void GrpoTrainer::add_metrics(std::map<std::string, double> metrics) {
  for (const auto& [name, value] : metrics) {
    if (std::isnan(value)) continue;
    auto& [sum, number] = means_[name];
    sum += value;
    ++number;
  }
}

void GrpoTrainer::log_interval() {
  if (interval_.steps == 0) return;
  for (const auto& [name, mean] : means_)
    interval_.extra[name] = mean.first / static_cast<double>(mean.second);
  interval_.extra["num_tokens"] = static_cast<double>(progress_.tokens);
  const auto loss = interval_.extra.find("loss");
  interval_.loss = loss == interval_.extra.end() ? std::nan("") : loss->second;
  if (loss != interval_.extra.end()) interval_.extra.erase(loss);
  const auto steps = interval_.steps - interval_.skipped;
  if (steps > 0) {
    loss_sum_ += *interval_.loss * static_cast<double>(steps);
    loss_steps_ += steps;
  }
  const auto warnings = health_.warnings(interval_.extra);
  reporter_->interval(interval_);
  for (const auto& warning : warnings) reporter_->note(warning);
  report_unscored();
  interval_ = {};
  means_.clear();
}

}  // namespace mgpu::rl
