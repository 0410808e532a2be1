#include "runtime/rl/decoder_reward_model.hpp"

#include <ATen/ops/mm.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/profiling/range.hpp"
#include "runtime/rollout/paged_model.hpp"
#include "runtime/train/to_device.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::rl {
namespace {

using rewards::RewardError;

constexpr std::size_t kMaxTokensAtOnce = 8192;  // per forward pass, unless a single text is longer

model::TransformerOptions options_of(at::Device device, at::ScalarType dtype) {
  model::TransformerOptions options;
  options.device = device;
  options.dtype = dtype;
  return options;
}

// Concatenates texts. In each, the last token that is not padding is marked as a target.
data::Batch batch_of_texts(const std::vector<const std::vector<std::int32_t>*>& texts,
                           std::optional<std::int32_t> padding) {
  data::BatchBuilder batch;
  for (const auto* text : texts) {
    batch.add({*text});
    auto last = text->size() - 1;
    while (last > 0 && (*text)[last] == padding) --last;
    if ((*text)[last] == padding) last = 0;
    batch.set_target(last, 0);
  }
  return batch.take();
}

}  // namespace

DecoderRewardModel::DecoderRewardModel(RewardModelSource opened, const Options& options,
                                       comm::Comm& comm)
    : RewardModel(std::move(opened), options, comm),
      encoder_(source().model.tokenizer, source().model.chat_template),
      template_extra_(options.template_extra),
      // As in TRL: without a padding token the end-of-text token is used.
      padding_(source().model.tokenizer.pad_id() ? source().model.tokenizer.pad_id()
                                                 : source().model.tokenizer.eos_id()),
      shards_(placement().make_shards(source().model.config, model::lay_out(source().model.config),
                                      options.dtype)),
      transformer_(source().model.config, options_of(placement().device(), options.dtype)) {
  if (!shards_) return;
  const c10::OptionalDeviceGuard guard(placement().device());
  const auto& model = source().model;
  train::load_weights(*shards_, *model.weights, model.config, model.vocab_on_disk);
  head_ = source().head.to(placement().device()).t();
}

DecoderRewardModel::Tokens DecoderRewardModel::encode(const ScoredCompletion& completion,
                                                      const Prompt& prompt) const {
  try {
    if (prompt.messages.empty()) return encoder_.encode(prompt.text + completion.text, false);
    auto messages = data::Json::parse(prompt.messages);
    messages.push_back({{"role", "assistant"}, {"content", completion.text}});
    return encoder_.encode(encoder_.render(messages, nullptr, false, template_extra_), false);
  } catch (const std::runtime_error& e) {
    rendezvous::throw_like(e, fmt::format("reward {}: {}: {}", name(), prompt.where, e.what()));
  }
}

std::vector<rewards::Score> DecoderRewardModel::score(std::span<const ScoredCompletion> completions,
                                                      const std::vector<Prompt>& prompts) {
  const profiling::Range range("reward");
  const c10::OptionalDeviceGuard guard(placement().device());
  const rollout::GatheredWeights whole(source().model.config, *shards_);
  std::vector<Tokens> texts;
  std::vector<std::size_t> order;
  for (const auto& completion : completions) {
    texts.push_back(encode(completion, prompts[completion.prompt]));
    const auto size = static_cast<std::int64_t>(texts.back().size());
    if (size > 0 && size <= longest()) order.push_back(texts.size() - 1);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return texts[a].size() > texts[b].size(); });
  std::vector<rewards::Score> scores(completions.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::vector<const Tokens*> some;
    std::size_t tokens = 0;
    for (auto i = begin; i < order.size(); ++i) {
      tokens += texts[order[i]].size();
      if (tokens > kMaxTokensAtOnce && !some.empty()) break;
      some.push_back(&texts[order[i]]);
    }
    for (const float value : logits(some)) {
      if (!std::isfinite(value)) throw RewardError(name(), "the model's logit is not finite");
      scores[order[begin++]] = value;
    }
  }
  return scores;
}

std::vector<float> DecoderRewardModel::logits(const std::vector<const Tokens*>& texts) {
  const auto batch = train::to_device(batch_of_texts(texts, padding_), placement().device());
  const auto hidden = transformer_.hidden(batch, *shards_);
  const auto scores = at::mm(hidden.to(at::kFloat), head_).cpu().contiguous();
  const auto* first = scores.const_data_ptr<float>();
  return {first, first + scores.numel()};
}

}  // namespace mgpu::rl
