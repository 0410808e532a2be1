#include "runtime/rl/encoder_reward_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "runtime/profiling/range.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::rl {
namespace {

using encoder::TypedTokens;
using rewards::RewardError;

}  // namespace

std::string question_of(const Prompt& prompt) {
  if (prompt.messages.empty()) return prompt.text;
  std::string question;
  for (const auto& message : nlohmann::json::parse(prompt.messages)) {
    if (message.value("role", "") == "system") continue;
    const auto content = message.find("content");
    if (content == message.end() || !content->is_string())
      throw std::runtime_error("a message of the prompt has no text that the model can read");
    question += (question.empty() ? "" : "\n\n") + content->get<std::string>();
  }
  return question;
}

EncoderRewardModel::EncoderRewardModel(RewardModelSource opened, const Options& options,
                                       comm::Comm& comm)
    : RewardModel(std::move(opened), options, comm) {
  if (!placement().local()) return;
  const auto& weights = *source().model.weights;
  model_.emplace(
      *source().deberta,
      [&](const checkpoint::TensorShape& shape) {
        return train::tensor_over(weights.get_floats(shape));
      },
      placement().device());
}

TypedTokens EncoderRewardModel::encode(const ScoredCompletion& completion,
                                       const Prompt& prompt) const {
  try {
    auto pair = source().model.tokenizer.encode_pair(question_of(prompt), completion.text,
                                                     static_cast<std::size_t>(longest()));
    return {std::move(pair.both.ids), std::move(pair.both.types)};
  } catch (const std::runtime_error& e) {
    rendezvous::throw_like(e, fmt::format("reward {}: {}: {}", name(), prompt.where, e.what()));
  }
}

std::vector<rewards::Score> EncoderRewardModel::score(std::span<const ScoredCompletion> completions,
                                                      const std::vector<Prompt>& prompts) {
  const profiling::Range range("reward");
  std::vector<TypedTokens> texts;
  std::vector<std::size_t> order;
  for (const auto& completion : completions) {
    texts.push_back(encode(completion, prompts[completion.prompt]));
    if (!texts.back().ids.empty()) order.push_back(texts.size() - 1);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return texts[a].ids.size() > texts[b].ids.size();
  });
  std::vector<rewards::Score> scores(completions.size());
  for (std::size_t begin = 0; begin < order.size();) {
    const std::size_t length = texts[order[begin]].ids.size();
    const std::size_t count =
        std::min(std::max<std::size_t>(1, kMaxPaddedTokens / length), order.size() - begin);
    std::vector<const TypedTokens*> some;
    for (std::size_t i = begin; i < begin + count; ++i) some.push_back(&texts[order[i]]);
    for (const float value : model_->logits(some)) {
      if (!std::isfinite(value)) throw RewardError(name(), "the model's logit is not finite");
      scores[order[begin++]] = value;
    }
  }
  return scores;
}

}  // namespace mgpu::rl
