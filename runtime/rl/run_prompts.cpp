#include "runtime/rl/run_prompts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/config/grpo_values.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/data/text_encoder.hpp"
#include "runtime/rl/recipe.hpp"
#include "runtime/train/row_sources.hpp"

namespace mgpu::rl {
namespace {

constexpr double kLeftOut = .2;  // of the rows, with sample_train

std::int64_t longest_of(const std::vector<Prompt>& prompts) {
  std::size_t most = 0;
  for (const auto& prompt : prompts) most = std::max(most, prompt.tokens.size());
  return static_cast<std::int64_t>(most);
}

}  // namespace

RunPrompts::RunPrompts(const train::TrainConfig& config, const train::ModelSource& source,
                       const rewards::ItemList* items) {
  const data::TextEncoder encoder(source.tokenizer, source.chat_template);
  auto options = prompt_options(config);
  options.items = items;
  const auto max_tokens = generation_settings(config).max_tokens;
  if (const auto positions = source.config.longest_sequence(), room = positions - max_tokens;
      positions > 0) {
    if (room < 1)
      throw train::RecipeError({fmt::format(
          "max_completion_length: {} leaves no space for a prompt; the model supports {} "
          "tokens",
          max_tokens, positions)});
    options.longest = options.longest > 0 ? std::min(options.longest, room) : room;
  }
  if (train::GrpoValues(config).flag("sample_train") &&
      config.model_name_or_path.find("sft") != std::string::npos)
    left_out_ = kLeftOut;
  encoder_digest_ = encoder.fingerprint();
  mixture_ = train::mixture_of(config);
  mixed_datasets_ = train::mixed_datasets(config.dataset_name);
  training_ = read_prompts(config.dataset_name, options, encoder);
  if (!config.eval_dataset.empty())
    eval_dataset_ = read_prompts(config.eval_dataset, options, encoder);
}

const std::vector<Prompt>& RunPrompts::evaluation() const {
  return eval_dataset_.all.empty() ? training_.all : eval_dataset_.all;
}

std::int64_t RunPrompts::longest() const {
  return std::max(longest_of(training_.all), longest_of(eval_dataset_.all));
}

std::int64_t RunPrompts::longest_training() const {
  return longest_of(training_.all);
}

std::vector<std::string> RunPrompts::notes() const {
  auto notes = training_.notes;
  notes.insert(notes.end(), eval_dataset_.notes.begin(), eval_dataset_.notes.end());
  return notes;
}

std::vector<data::Selection> RunPrompts::split(double val_set_size, std::uint64_t seed) {
  auto split = data::split(training_.ranges, val_set_size, seed);
  if (eval_dataset_.all.empty()) {
    evaluated_ = std::move(split.validation);
  } else {
    evaluated_.resize(eval_dataset_.all.size());
    std::iota(evaluated_.begin(), evaluated_.end(), 0U);
  }
  data::interleave(split.train, mixed_datasets_, mixture_);
  if (left_out_ > 0) data::leave_out(split.train, left_out_, seed);
  return std::move(split.train);
}

}  // namespace mgpu::rl
