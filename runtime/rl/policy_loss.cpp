#include "runtime/rl/policy_loss.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "runtime/grpo/token_budget.hpp"

namespace mgpu::rl {
namespace {

using at::Tensor;

template <class T>
Tensor to_tensor(std::vector<T>& values, at::ScalarType type, at::Device device) {
  return at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, type)
      .clone()
      .to(device);
}

// Concatenates one list of every entry; undefined if an entry has no such list.
Tensor concatenate(std::span<const BatchEntry> entries, std::vector<float> ScoredCompletion::* list,
                   at::Device device) {
  std::vector<float> all;
  for (const auto& entry : entries) {
    const auto& values = entry.completion->*list;
    if (values.size() != entry.completion->tokens.size()) return {};
    all.insert(all.end(), values.begin(), values.end());
  }
  return to_tensor(all, at::kFloat, device);
}

// Whether an entry completes the prompt of the one before it.
bool continues_prompt(std::span<const BatchEntry> entries, std::size_t i) {
  return i > 0 && entries[i].completion->prompt == entries[i - 1].completion->prompt;
}

// Whether to compute each prompt once. That needs beginnings that are not empty, and it is worth
// its second attention only if it saves more than a few of the tokens.
bool shares_prompts(std::span<const BatchEntry> entries, const std::vector<Prompt>& prompts) {
  std::size_t all = 0, saved = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto prompt = prompts[entries[i].completion->prompt].tokens.size();
    if (prompt < 2) return false;
    all += prompt + entries[i].completion->tokens.size();
    if (continues_prompt(entries, i)) saved += prompt - 1;
  }
  return grpo::pays_to_share(static_cast<std::int64_t>(saved), static_cast<std::int64_t>(all));
}

}  // namespace

data::Batch batch_of(std::span<const BatchEntry> entries, const std::vector<Prompt>& prompts) {
  const bool shares = shares_prompts(entries, prompts);
  const auto prompt_of = [&](std::size_t i) {
    return std::span<const std::int32_t>(prompts[entries[i].completion->prompt].tokens);
  };
  // The first token of a completion is predicted from the last one of its prompt, which therefore
  // belongs to each branch.
  data::BatchBuilder batch;
  for (std::size_t i = 0; shares && i < entries.size(); ++i)
    if (!continues_prompt(entries, i)) batch.add({prompt_of(i).first(prompt_of(i).size() - 1)});
  std::size_t begun = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::span<const std::int32_t> tokens = entries[i].completion->tokens;
    // Nothing is predicted from the last token, so it is not part of the input.
    const auto input = tokens.first(tokens.empty() ? 0 : tokens.size() - 1);
    const auto own = shares ? prompt_of(i).last(1) : prompt_of(i);
    if (shares) {
      begun += continues_prompt(entries, i) ? 0 : 1;
      batch.add_branch(begun - 1, {own, input});
    } else {
      batch.add({own, input});
    }
    for (std::size_t at = 0; at < tokens.size(); ++at)
      batch.set_target(own.size() - 1 + at, tokens[at]);
  }
  return batch.take();
}

PolicyLoss::PolicyLoss(std::span<const BatchEntry> entries, const grpo::LossSettings& settings,
                       const grpo::Denominators& denominators, Threshold threshold,
                       at::Device device)
    : settings_(settings), denominators_(denominators), threshold_(std::move(threshold)) {
  std::vector<std::int64_t> sequence;
  std::vector<float> advantages, weights;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    sequence.insert(sequence.end(), entries[i].completion->tokens.size(),
                    static_cast<std::int64_t>(i));
    advantages.push_back(static_cast<float>(entries[i].completion->advantage));
    weights.push_back(entries[i].in_loss ? 1.0F : 0.0F);
  }
  input_.sequence = to_tensor(sequence, at::kLong, device);
  input_.advantages = to_tensor(advantages, at::kFloat, device);
  input_.weights = to_tensor(weights, at::kFloat, device);
  input_.old_log_probs = concatenate(entries, &ScoredCompletion::old_log_probs, device);
  input_.ref_log_probs = concatenate(entries, &ScoredCompletion::ref_log_probs, device);
  input_.sampler_log_probs = concatenate(entries, &ScoredCompletion::sampler_log_probs, device);
}

ops::TokenSlopes PolicyLoss::slopes(const ops::TokenScores& scores) {
  input_.log_probs = scores.log_probs;
  input_.entropies = scores.entropies;
  if (threshold_) input_.entropy_threshold = threshold_(grpo::entropies_to_share(input_));
  loss_ = grpo::loss(input_, settings_, denominators_);
  return {loss_.log_prob_gradient, loss_.entropy_gradient};
}

std::optional<ops::TokenSlopes> PolicyLoss::slopes_without_scores() {
  if (threshold_ || grpo::gradient_needs_scores(input_, settings_)) return {};
  auto any = input_;
  any.log_probs = any.entropies = at::zeros({input_.sequence.numel()}, input_.advantages.options());
  const auto loss = grpo::loss(any, settings_, denominators_);
  return ops::TokenSlopes{loss.log_prob_gradient, loss.entropy_gradient};
}

}  // namespace mgpu::rl
