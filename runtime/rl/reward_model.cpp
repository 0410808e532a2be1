#include "runtime/rl/reward_model.hpp"

#include <ATen/ops/mm.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "runtime/checkpoint/json_text.hpp"
#include "runtime/profiling/range.hpp"
#include "runtime/rewards/catalog.hpp"
#include "runtime/rollout/paged_model.hpp"
#include "runtime/train/to_device.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::rl {
namespace {

namespace fs = std::filesystem;
using rewards::RewardError;

constexpr std::size_t kMaxTokensAtOnce = 8192;  // per forward pass, unless a single text is longer

void require_reward_model(const std::string& name, const train::ModelSource& model) {
  const auto config = checkpoint::parse_json(model.config_text, model.folder + "/config.json");
  const checkpoint::Fields fields(config, model.folder + "/config.json");
  const auto architectures = fields.strings("architectures");
  if (architectures.size() == 1 && architectures[0].ends_with("ForSequenceClassification")) return;
  throw RewardError(
      name,
      fmt::format("{} is a {}; a reward model must be a ...ForSequenceClassification", model.folder,
                  architectures.empty() ? "model without architectures" : architectures[0]));
}

at::Tensor head_of(const std::string& name, const train::ModelSource& model) {
  const auto found = model.weights->find("score.weight");
  if (!found)
    throw RewardError(name,
                      model.folder + " has no score.weight, the head that computes the score");
  const auto width = model.config.hidden_size;
  if (found->shape.size() != 2 || found->shape[1] != width)
    throw RewardError(
        name, fmt::format("score.weight of {} is not a matrix of width {}", model.folder, width));
  if (found->shape[0] != 1)
    throw RewardError(name,
                      fmt::format("{} has {} labels; a reward model must have one (num_labels 1)",
                                  model.folder, found->shape[0]));
  return train::tensor_over(*found).to(at::kFloat);
}

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

bool is_reward_model(const std::string& entry, const rewards::Settings& settings) {
  const auto names = rewards::reward_names();
  if (std::find(names.begin(), names.end(), entry) != names.end()) return false;
  std::error_code ignored;  // a cmd: entry may be longer than a path can be
  return !settings.reward_rules.contains(entry) &&
         fs::exists(fs::path(entry) / "config.json", ignored);
}

std::string reward_model_name(const std::string& folder) {
  auto path = fs::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

RewardModelSource open_reward_model(const std::string& folder, std::size_t index) {
  const auto name = reward_model_name(folder);
  train::TrainConfig config;
  config.model_name_or_path = folder;
  try {
    RewardModelSource source{name, index, train::open_model(config), {}};
    require_reward_model(name, source.model);
    source.head = head_of(name, source.model);
    source.model.config.tied = true;  // no head over the vocabulary
    train::check_vocabulary(source.model);
    return source;
  } catch (const RewardError&) {
    throw;
  } catch (const std::runtime_error& e) {
    throw RewardError(name, e.what());
  }
}

void require_chat_template(const RewardModelSource& source, const std::vector<Prompt>& prompts) {
  if (!source.model.chat_template.empty()) return;
  for (const auto& prompt : prompts)
    if (!prompt.messages.empty())
      throw RewardError(source.name, fmt::format("{}: the prompt is a conversation, but {} has no "
                                                 "chat template",
                                                 prompt.where, source.model.folder));
}

RewardModel::RewardModel(RewardModelSource source, const Options& options, comm::Comm& comm)
    : source_(std::move(source)),
      encoder_(source_.model.tokenizer, source_.model.chat_template),
      template_extra_(options.template_extra),
      // As in TRL: without a padding token the end-of-text token is used.
      padding_(source_.model.tokenizer.pad_id() ? source_.model.tokenizer.pad_id()
                                                : source_.model.tokenizer.eos_id()),
      placement_(options.role, options.device, comm),
      shards_(placement_.make_shards(source_.model.config, model::lay_out(source_.model.config),
                                     options.dtype)),
      transformer_(source_.model.config, options_of(placement_.device(), options.dtype)) {
  if (!shards_) return;
  const c10::OptionalDeviceGuard guard(placement_.device());
  const auto& model = source_.model;
  train::load_weights(*shards_, *model.weights, model.config, model.vocab_on_disk);
  head_ = source_.head.to(placement_.device()).t();
}

RewardModel::Tokens RewardModel::encode(const ScoredCompletion& completion,
                                        const Prompt& prompt) const {
  try {
    if (prompt.messages.empty()) return encoder_.encode(prompt.text + completion.text, false);
    auto messages = data::Json::parse(prompt.messages);
    messages.push_back({{"role", "assistant"}, {"content", completion.text}});
    return encoder_.encode(encoder_.render(messages, nullptr, false, template_extra_), false);
  } catch (const std::runtime_error& e) {
    throw RewardError(name(), fmt::format("{}: {}", prompt.where, e.what()));
  }
}

std::vector<rewards::Score> RewardModel::score(std::span<const ScoredCompletion> completions,
                                               const std::vector<Prompt>& prompts) {
  const profiling::Range range("reward");
  const c10::OptionalDeviceGuard guard(placement_.device());
  const rollout::GatheredWeights whole(source_.model.config, *shards_);
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

std::vector<float> RewardModel::logits(const std::vector<const Tokens*>& texts) {
  const auto batch = train::to_device(batch_of_texts(texts, padding_), placement_.device());
  const auto hidden = transformer_.hidden(batch, *shards_);
  const auto scores = at::mm(hidden.to(at::kFloat), head_).cpu().contiguous();
  const auto* first = scores.const_data_ptr<float>();
  return {first, first + scores.numel()};
}

}  // namespace mgpu::rl
