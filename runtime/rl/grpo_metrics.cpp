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
  meter_.add_step({.step = progress_.step + 1,
                   .total_steps = total_steps_,
                   .epoch = plan_->epochs_after(progress_.step),
                   .learning_rate = rate,
                   .grad_norm = outcome.grad_norm,
                   .comm_seconds = outcome.comm_seconds / contract_.world_size,
                   .completions = by.completions,
                   .tokens = by.tokens,
                   .skipped = outcome.skipped});
  if (outcome.skipped) {
    const auto text = fmt::format("step {}: the gradient is not finite", progress_.step + 1);
    if (config_.on_non_finite == train::NonFinite::stop)
      throw std::runtime_error(text +
                               "; the weights are unchanged by this step. Lower "
                               "learning_rate or check the rewards");
    reporter_->note(text + "; the step is skipped");
    values.erase("loss");
  }
  meter_.add(values);
}

void GrpoTrainer::log_interval() {
  const auto report = meter_.take_interval(progress_.tokens);
  if (!report) return;
  reporter_->interval(report->interval);
  for (const auto& warning : report->warnings) reporter_->note(warning);
  for (const auto& warning : frozen_models_->take_warnings()) reporter_->note(warning);
}

}  // namespace mgpu::rl
