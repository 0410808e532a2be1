#include "runtime/rl/policy_loss.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

namespace mgpu::rl {
namespace {

using at::Tensor;

template <class T>
Tensor to_tensor(std::vector<T>& values, at::ScalarType type, at::Device device) {
  return at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, type)
      .clone()
      .to(device);
}

// One list after the other; undefined where a member has none.
Tensor end_to_end(std::span<const Member> members, std::vector<float> Sample::* list,
                  at::Device device) {
  std::vector<float> all;
  for (const auto& member : members) {
    const auto& values = member.sample->*list;
    if (values.size() != member.sample->tokens.size()) return {};
    all.insert(all.end(), values.begin(), values.end());
  }
  return to_tensor(all, at::kFloat, device);
}

}  // namespace

data::Batch lay_out(std::span<const Member> members, const std::vector<Question>& questions) {
  data::Batch batch;
  for (const auto& member : members) {
    const auto& prompt = questions[member.sample->question].tokens;
    const auto& made = member.sample->tokens;
    batch.starts.push_back(static_cast<std::int32_t>(batch.tokens.size()));
    const auto add = [&](std::int32_t token) {
      batch.positions.push_back(static_cast<std::int32_t>(batch.tokens.size()) -
                                batch.starts.back());
      batch.tokens.push_back(token);
      batch.targets.push_back(data::kNoTarget);
    };
    for (const auto token : prompt) add(token);
    // What the last token predicts is not asked, so it need not be read.
    for (std::size_t i = 0; i < made.size(); ++i) {
      batch.targets.back() = made[i];
      if (i + 1 < made.size()) add(made[i]);
    }
    batch.target_tokens += static_cast<std::int64_t>(made.size());
    batch.longest = std::max(batch.longest,
                             static_cast<std::int32_t>(batch.tokens.size()) - batch.starts.back());
  }
  batch.starts.push_back(static_cast<std::int32_t>(batch.tokens.size()));
  return batch;
}

PolicyLoss::PolicyLoss(std::span<const Member> members, const grpo::LossSettings& settings,
                       const grpo::Denominators& denominators, Threshold threshold,
                       at::Device device)
    : settings_(settings), denominators_(denominators), threshold_(std::move(threshold)) {
  std::vector<std::int64_t> sequence;
  std::vector<float> advantages, weights;
  for (std::size_t i = 0; i < members.size(); ++i) {
    sequence.insert(sequence.end(), members[i].sample->tokens.size(), static_cast<std::int64_t>(i));
    advantages.push_back(static_cast<float>(members[i].sample->advantage));
    weights.push_back(members[i].counts ? 1.0F : 0.0F);
  }
  input_.sequence = to_tensor(sequence, at::kLong, device);
  input_.advantages = to_tensor(advantages, at::kFloat, device);
  input_.weights = to_tensor(weights, at::kFloat, device);
  input_.old_log_probs = end_to_end(members, &Sample::old_log_probs, device);
  input_.ref_log_probs = end_to_end(members, &Sample::ref_log_probs, device);
  input_.sampler_log_probs = end_to_end(members, &Sample::sampler_log_probs, device);
}

ops::TokenSlopes PolicyLoss::slopes(const ops::TokenScores& scores) {
  input_.log_probs = scores.log_probs;
  input_.entropies = scores.entropies;
  if (threshold_) input_.entropy_threshold = threshold_(grpo::entropies_to_share(input_));
  loss_ = grpo::loss(input_, settings_, denominators_);
  return {loss_.log_prob_gradient, loss_.entropy_gradient};
}

}  // namespace mgpu::rl
