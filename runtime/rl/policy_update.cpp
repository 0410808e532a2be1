#include "runtime/rl/policy_update.hpp"

#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>

#include <cmath>
#include <optional>
#include <span>

#include "runtime/rl/policy_loss.hpp"
#include "runtime/train/to_device.hpp"

namespace mgpu::rl {
namespace {

// The objective times the loss scale of fp16.
class Scaled : public model::Objective {
 public:
  Scaled(model::Objective& objective, double scale) : objective_(objective), scale_(scale) {}

  ops::TokenSlopes slopes(const ops::TokenScores& scores) override {
    return scaled(objective_.slopes(scores));
  }
  std::optional<ops::TokenSlopes> slopes_without_scores() override {
    auto slopes = objective_.slopes_without_scores();
    if (slopes) slopes = scaled(*slopes);
    return slopes;
  }

 private:
  ops::TokenSlopes scaled(const ops::TokenSlopes& slopes) const {
    if (scale_ == 1) return slopes;
    return {slopes.log_probs.mul(scale_),
            slopes.entropies.defined() ? slopes.entropies.mul(scale_) : at::Tensor()};
  }

  model::Objective& objective_;
  double scale_;
};

}  // namespace

UpdateResult PolicyUpdate::step(const UpdateRequest& request) {
  while (true) {
    auto metrics = grpo::no_metrics(policy_.device);
    for (const auto& micro_batch : request.deal.measured)
      if (!micro_batch.skipped) metrics.add(measure(request, micro_batch));
    const auto outcome = run_step(request, metrics).outcome(request.step);
    if (outcome.out_of_memory.empty()) return {outcome, values_of(metrics, request.loss)};
    request.divide_micro_batches(outcome);
  }
}

// Adds the metrics of the trained micro-batches.
train::StepRecord PolicyUpdate::run_step(const UpdateRequest& request, grpo::LossMetrics& metrics) {
  const auto& micro_batches = request.deal.micro_batches;
  const auto pieces = policy_.learner.pieces();
  const auto piece = [&](std::size_t number) {
    return piece_of(micro_batches[number / pieces], number % pieces, pieces);
  };
  const auto run_piece = [&](std::size_t number, train::StepRecord&) {
    metrics.add(compute(request, piece(number)));
  };
  const auto skipped = [&](std::size_t number) { return micro_batches[number / pieces].skipped; };
  train::MicroBatches all{micro_batches.size() * pieces, run_piece, {}, skipped};
  if (request.divide_micro_batches)
    all.divisible = [&](std::size_t number) {
      return !skipped(number) && piece(number).entries.size() > 1;
    };
  return policy_.learner.step(all, request.learning_rate, request.requests);
}

// Forward only: the metrics of completions that have no gradient.
grpo::LossMetrics PolicyUpdate::measure(const UpdateRequest& request,
                                        const MicroBatch& micro_batch) {
  PolicyLoss objective(micro_batch.entries, request.loss, micro_batch.denominators, {},
                       policy_.device);
  const auto batch =
      train::to_device(batch_of(micro_batch.entries, request.prompts), policy_.device);
  auto& learner = policy_.learner;
  objective.slopes(learner.transformer().score(batch, policy_.temperature, learner.shards()));
  return objective.loss().metrics;
}

// Forward and backward of one micro-batch.
grpo::LossMetrics PolicyUpdate::compute(const UpdateRequest& request,
                                        const MicroBatch& micro_batch) {
  PolicyLoss::Threshold threshold;
  if (const auto quantile = request.loss.top_entropy_quantile; quantile < 1)
    threshold = [this, quantile](const at::Tensor& entropies) {
      return this->threshold(entropies, quantile);
    };
  PolicyLoss objective(micro_batch.entries, request.loss, micro_batch.denominators, threshold,
                       policy_.device);
  const auto batch =
      train::to_device(batch_of(micro_batch.entries, request.prompts), policy_.device);
  auto& learner = policy_.learner;
  Scaled scaled(objective, learner.loss_scale());
  learner.transformer().train(batch, scaled, policy_.temperature,
                              request.dropout_seed(micro_batch.number), learner.shards());
  return objective.loss().metrics;
}

// The lowest entropy, over all ranks, of the tokens that are trained on. Ranks have different
// numbers of tokens, at most max_tokens_.
at::Tensor PolicyUpdate::threshold(const at::Tensor& entropies, double quantile) {
  auto own = at::full({max_tokens_}, std::nan(""), entropies.options());
  own.narrow(0, 0, entropies.numel()).copy_(entropies);
  const auto all = at::empty({max_tokens_ * policy_.comm.world()}, own.options());
  policy_.comm.all_gather(all, own, "entropies").wait();
  return grpo::entropy_threshold(all, quantile);
}

std::map<std::string, double> PolicyUpdate::values_of(const grpo::LossMetrics& metrics,
                                                      const grpo::LossSettings& loss) {
  auto& comm = policy_.comm;
  comm.all_reduce(metrics.sums, "sums of the loss").wait();
  const auto every = at::empty({comm.world(), metrics.maxima.numel()}, metrics.maxima.options());
  comm.all_gather(every.view({-1}), metrics.maxima, "extremes of the loss").wait();
  const auto sums = metrics.sums.cpu(), maxima = every.amax({0}).cpu();
  const auto span = [](const at::Tensor& t) {
    return std::span(t.const_data_ptr<double>(), static_cast<std::size_t>(t.numel()));
  };
  return grpo::metric_values(loss, span(sums), span(maxima));
}

}  // namespace mgpu::rl
