#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "runtime/model/transformer.hpp"
#include "runtime/rl/policy_loss.hpp"
#include "runtime/train/to_device.hpp"
#include "tests/support/catch.hpp"

// A micro-batch whose completions share their prompts, compared with one completion at a time.
namespace {

using namespace mgpu;
using namespace mgpu::rl;
using at::Tensor;

model::ModelConfig config_of(bool qk_norm) {
  model::ModelConfig config;
  config.vocab_size = 60;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.layers = 3;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.max_position = 256;
  config.tied = false;
  config.qk_norm = qk_norm;
  return config;
}

Tensor random(std::int64_t out, std::int64_t in) {
  return at::randn({out, in}).mul(1 / std::sqrt(static_cast<double>(in)));
}

// Random weights that are all trained.
class Weights final : public model::WeightProvider {
 public:
  explicit Weights(const model::ModelConfig& c) {
    at::manual_seed(5);
    units_.resize(static_cast<std::size_t>(model::end_unit(c)) + 1);
    units_[model::kEmbeddingUnit].embedding = at::randn({c.vocab_size, c.hidden_size});
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      auto& block = units_[static_cast<std::size_t>(model::block_unit(layer))].block;
      block.input_norm = at::ones({c.hidden_size});
      block.post_norm = at::ones({c.hidden_size});
      if (c.qk_norm) {
        block.q_norm = at::ones({c.head_dim});
        block.k_norm = at::ones({c.head_dim}).mul(2);
      }
      block.qkv.weight = random((c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden_size);
      block.o.weight = random(c.hidden_size, c.heads * c.head_dim);
      block.gate_up.weight = random(2 * c.intermediate_size, c.hidden_size);
      block.down.weight = random(c.hidden_size, c.intermediate_size);
    }
    units_.back().last_norm = at::ones({c.hidden_size});
    units_.back().head = random(c.vocab_size, c.hidden_size);
    gradients_ = units_;
    for (auto& unit : gradients_)
      for (auto* tensor : tensors_of(unit))
        if (tensor->defined()) *tensor = at::zeros_like(*tensor);
  }

  const model::Unit& weights(int unit) override {
    return units_.at(static_cast<std::size_t>(unit));
  }
  void release(int) override {}
  void prefetch(int) override {}
  const model::Unit& gradients(int unit) override {
    return gradients_.at(static_cast<std::size_t>(unit));
  }
  void gradients_done(int) override {}

  std::vector<Tensor> all_gradients() {
    std::vector<Tensor> all;
    for (auto& unit : gradients_)
      for (auto* tensor : tensors_of(unit))
        if (tensor->defined()) all.push_back(*tensor);
    return all;
  }

 private:
  static std::array<Tensor*, 11> tensors_of(model::Unit& unit) {
    auto& b = unit.block;
    return {&unit.embedding, &b.input_norm,   &b.post_norm, &b.q_norm,
            &b.k_norm,       &b.qkv.weight,   &b.o.weight,  &b.gate_up.weight,
            &b.down.weight,  &unit.last_norm, &unit.head};
  }

  std::vector<model::Unit> units_, gradients_;
};

struct Example {
  std::vector<Prompt> prompts;
  std::vector<ScoredCompletion> completions;
};

// Prompts of 9, 2 and 40 tokens with completions of many lengths.
Example example() {
  Example all;
  all.prompts.resize(3);
  auto token = [n = 0]() mutable { return (n += 37) % 60; };
  const std::array<std::size_t, 3> sizes{9, 2, 40};
  for (std::size_t p = 0; p < sizes.size(); ++p)
    for (std::size_t i = 0; i < sizes[p]; ++i) all.prompts[p].tokens.push_back(token());
  const std::vector<std::vector<std::size_t>> lengths{{5, 1, 12}, {3}, {7, 0, 30, 2}};
  for (std::uint32_t p = 0; p < lengths.size(); ++p)
    for (const auto length : lengths[p]) {
      ScoredCompletion one;
      one.prompt = p;
      for (std::size_t i = 0; i < length; ++i) {
        one.tokens.push_back(token());
        one.ref_log_probs.push_back(-3 - static_cast<float>(i % 4));
      }
      one.advantage = static_cast<double>(all.completions.size()) - 3.5;
      all.completions.push_back(std::move(one));
    }
  return all;
}

struct Outcome {
  Tensor log_probs, metrics;
  std::vector<Tensor> gradients;
};

// Computes the entries in micro-batches of `at_once`.
Outcome train_all(const Example& all, const model::ModelConfig& config, std::size_t at_once,
                  model::SavedActivations saves) {
  model::TransformerOptions options;
  options.saved_activations.assign(static_cast<std::size_t>(config.layers), saves);
  model::Transformer transformer(config, options);
  Weights weights(config);
  const grpo::LossSettings settings{
      .type = train::LossType::dapo, .level = train::ImportanceLevel::token, .beta = .1};
  const grpo::Denominators by{.completions = 8, .tokens = 60, .max_completion_length = 30};
  std::vector<BatchEntry> entries;
  for (const auto& one : all.completions) entries.push_back({&one, true});
  std::vector<Tensor> log_probs;
  Outcome outcome;
  for (std::size_t begin = 0; begin < entries.size(); begin += at_once) {
    const auto some = std::span<const BatchEntry>(entries).subspan(
        begin, std::min(at_once, entries.size() - begin));
    const auto host = batch_of(some, all.prompts);
    CHECK(host.branches.empty() == (at_once == 1));
    const auto batch = train::to_device(host, at::kCPU);
    log_probs.push_back(transformer.score(batch, .9, weights).log_probs);
    PolicyLoss loss(some, settings, by, {}, at::kCPU);
    transformer.train(batch, loss, .9, 0, weights);
    const auto& sums = loss.loss().metrics.sums;
    outcome.metrics = outcome.metrics.defined() ? outcome.metrics + sums : sums;
  }
  outcome.log_probs = at::cat(log_probs);
  outcome.gradients = weights.all_gradients();
  return outcome;
}

double error(const Tensor& got, const Tensor& wanted) {
  return (got - wanted).norm().item<double>() / (wanted.norm().item<double>() + 1e-12);
}

}  // namespace

TEST_CASE("shared prompts change neither log-probs nor losses nor gradients", "[shared prompts]") {
  const auto config = config_of(GENERATE(false, true));
  const auto saves = GENERATE(model::SavedActivations::all, model::SavedActivations::input);
  const auto all = example();
  const auto alone = train_all(all, config, 1, saves), together = train_all(all, config, 8, saves);
  CHECK(error(together.log_probs, alone.log_probs) < 1e-6);
  CHECK(error(together.metrics, alone.metrics) < 1e-5);
  REQUIRE(together.gradients.size() == alone.gradients.size());
  for (std::size_t i = 0; i < alone.gradients.size(); ++i) {
    CAPTURE(i, alone.gradients[i].sizes());
    CHECK(alone.gradients[i].norm().item<double>() > 1e-3);
    CHECK(error(together.gradients[i], alone.gradients[i]) < 1e-5);
  }
}
