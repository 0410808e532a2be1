#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <optional>
#include <vector>

#include "runtime/model/transformer.hpp"
#include "tests/support/catch.hpp"

// What `fp32_logits` does to the head, on a CPU.
namespace {

using namespace mgpu;
using at::Tensor;

constexpr std::int64_t kVocabulary = 200, kWidth = 64, kTokens = 24;
constexpr double kTemperature = .8;

// An embedding, no blocks, and a head whose gradient is computed.
model::ModelConfig only_a_head() {
  model::ModelConfig config;
  config.vocab_size = kVocabulary;
  config.hidden_size = kWidth;
  config.layers = 0;
  config.heads = config.kv_heads = 1;
  config.head_dim = kWidth;
  config.tied = false;
  return config;
}

class Weights final : public model::WeightProvider {
 public:
  Weights() {
    at::manual_seed(3);
    units_.resize(2);
    units_[0].embedding = at::randn({kVocabulary, kWidth}).to(at::kBFloat16);
    units_[1].last_norm = at::ones({kWidth}, at::kBFloat16);
    units_[1].head = at::randn({kVocabulary, kWidth}).to(at::kBFloat16);  // logits of about 8
    gradients_.resize(2);
    gradients_[1].head = at::zeros({kVocabulary, kWidth});
  }

  const model::Unit& weights(int unit) override { return units_[static_cast<std::size_t>(unit)]; }
  void release(int) override {}
  void prefetch(int) override {}
  const model::Unit& gradients(int unit) override {
    return gradients_[static_cast<std::size_t>(unit)];
  }
  void gradients_done(int) override {}

 private:
  std::vector<model::Unit> units_, gradients_;
};

model::DeviceBatch batch() {
  model::DeviceBatch batch;
  batch.tokens = at::arange(kTokens, at::kInt);
  batch.positions = at::arange(kTokens, at::kInt);
  batch.targets = at::arange(kTokens, at::kInt).mul_(7);
  batch.target_rows = at::arange(kTokens, at::kLong);
  batch.sequences.count = 1;
  batch.sequences.longest = batch.sequences.tokens = kTokens;
  batch.sequences.equal = true;
  return batch;
}

// The sum of the log-probabilities of the target tokens.
class Sum final : public model::Objective {
 public:
  ops::TokenSlopes slopes(const ops::TokenScores& scores) override {
    return {at::ones_like(scores.log_probs), {}};
  }
};

// Slopes that do not depend on the scores, which it may or may not say.
class Fixed final : public model::Objective {
 public:
  Fixed(bool says_so, bool of_entropies) : says_so_(says_so) {
    at::manual_seed(5);
    slopes_.log_probs = at::randn({kTokens});
    if (of_entropies) slopes_.entropies = at::randn({kTokens});
  }
  ops::TokenSlopes slopes(const ops::TokenScores& scores) override {
    scores_ = {scores.log_probs.clone(), scores.entropies.clone()};
    return slopes_;
  }
  std::optional<ops::TokenSlopes> slopes_without_scores() override {
    return says_so_ ? std::optional(slopes_) : std::nullopt;
  }
  const ops::TokenScores& scores() const { return scores_; }

 private:
  bool says_so_;
  ops::TokenSlopes slopes_;
  ops::TokenScores scores_;
};

struct Errors {
  double of_scores, of_gradient;
};

double error(const Tensor& got, const Tensor& wanted) {
  return (got - wanted).norm().item<double>() / wanted.norm().item<double>();
}

// Compared with the head in fp32 on the same hidden states.
Errors errors(bool fp32_logits) {
  model::TransformerOptions options;
  options.dtype = at::kBFloat16;
  options.fp32_logits = fp32_logits;
  options.head_rows = 10;  // several pieces
  model::Transformer transformer(only_a_head(), options);
  Weights weights;
  const auto in = batch();
  const auto h = transformer.hidden(in, weights).to(at::kFloat);
  const auto w = weights.weights(1).head.to(at::kFloat);
  const auto log_p = at::log_softmax(at::mm(h, w.t()).div(kTemperature), -1);
  const auto places = in.targets.to(at::kLong).unsqueeze(1);
  auto slope = log_p.exp().neg();
  slope.scatter_add_(1, places, at::ones({kTokens, 1}));

  const auto scores = transformer.score(in, kTemperature, weights).log_probs;
  CHECK(scores.scalar_type() == at::kFloat);
  Sum sum;
  transformer.train(in, sum, kTemperature, 0, weights);
  return {error(scores, log_p.gather(1, places).squeeze(1)),
          error(weights.gradients(1).head, at::mm(slope.t(), h).div(kTemperature))};
}

}  // namespace

TEST_CASE("fp32 logits of bf16 weights give the log-probabilities and gradients of fp32",
          "[head]") {
  const auto rounded = errors(false), exact = errors(true);
  CHECK(exact.of_scores < 1e-6);
  CHECK(rounded.of_scores > 5e-4);
  CHECK(exact.of_gradient < 3e-3);  // the gradient of the logits is rounded once
  CHECK(rounded.of_gradient > 2 * exact.of_gradient);
}

TEST_CASE("slopes that are known before the scores give the same scores and gradients", "[head]") {
  const bool of_entropies = GENERATE(false, true);
  model::TransformerOptions options;
  options.dtype = at::kBFloat16;
  options.head_rows = GENERATE(10, 100);  // several pieces, and one
  model::Transformer transformer(only_a_head(), options);
  Fixed early(true, of_entropies), late(false, of_entropies);
  Weights one, two;
  transformer.train(batch(), early, kTemperature, 0, one);
  transformer.train(batch(), late, kTemperature, 0, two);
  CHECK(early.scores().log_probs.equal(late.scores().log_probs));
  CHECK(early.scores().entropies.equal(late.scores().entropies));
  CHECK(one.gradients(1).head.equal(two.gradients(1).head));
  CHECK(one.gradients(1).head.norm().item<double>() > 0);
}
