#include "runtime/rl/recommendation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/passing_error.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/data/digest.hpp"
#include "runtime/rl/group_selection.hpp"

namespace mgpu::rl {
namespace {

// The token that ends a completion.
std::int32_t end_token_of(const train::ModelSource& source) {
  if (const auto id = source.tokenizer.eos_id()) return *id;
  const auto& stops = source.config.eos_token_ids;
  if (stops.empty())
    throw rendezvous::InputError(
        "info_file: the model has no end-of-sequence token to end an item; name one as eos_token "
        "in its tokenizer_config.json");
  return stops.front();
}

}  // namespace

Recommendation::Recommendation(const train::TrainConfig& config, const train::ModelSource& source)
    : source_(source) {
  const train::GrpoValues values(config);
  const auto path = values.text("info_file");
  trains_on_beams_ = values.flag("beam_search");
  adds_target_ = values.flag("add_gt");
  samples_more_ = values.flag("dynamic_sampling") && !trains_on_beams_;
  const bool tests = values.flag("test_during_training");
  measures_ = !path.empty() || trains_on_beams_ || tests || values.is_set("reward_type");
  try {
    if (!path.empty()) read_items(path, values.whole("max_completion_length").value());
    if (trains_on_beams_) {
      check_beams(values.whole("num_generations").value(), "num_generations");
      check_beams(values.whole("num_generations_eval").value_or(1), "num_generations_eval");
    }
  } catch (const train::RecipeError&) {
    throw;
  } catch (const std::runtime_error& e) {
    if (rendezvous::is_passing(e)) throw;
    throw train::RecipeError({e.what()});
  }
  if (!tests) return;
  test_beams_ = values.whole("test_beam").value();
  if (!allowed_ || test_beams_ <= static_cast<std::int64_t>(allowed_->size())) return;
  test_beams_ = static_cast<std::int64_t>(allowed_->size());
  notes_.push_back(fmt::format("test_beam: evaluations have {} beams, one for each item of {}",
                               test_beams_, path));
}

void Recommendation::read_items(const std::string& path, std::int64_t most_tokens) {
  tokens_.emplace(rewards::ItemList::read(path), source_.tokenizer, end_token_of(source_),
                  source_.config.vocab_size);
  try {
    allowed_.emplace(tokens_->all(), tokens_->end_token());
  } catch (const std::runtime_error& e) {
    rendezvous::throw_like(e, fmt::format("{}: {}", path, e.what()));
  }
  const auto items = tokens_->items().all().size(), names = tokens_->items().names();
  notes_.push_back(fmt::format("{}: {} items; completions are restricted to them", path, items));
  if (names < items)
    notes_.push_back(
        fmt::format("{}: {} items have the name of another item; items with the same name cannot "
                    "be told apart and count as one",
                    path, items - names));
  if (allowed_->longest() > most_tokens)
    throw rendezvous::InputError(
        fmt::format("max_completion_length: {} is too small for the items of {}, which have up to "
                    "{} tokens",
                    most_tokens, path, allowed_->longest()));
}

void Recommendation::check_beams(std::int64_t beams, const char* key) const {
  if (allowed_ && beams > static_cast<std::int64_t>(allowed_->size()))
    throw rendezvous::InputError(
        fmt::format("{}: {} beams need as many items, but {} has {} with different names", key,
                    beams, tokens_->items().path(), allowed_->size()));
}

std::string Recommendation::digest() const {
  if (!tokens_) return {};
  std::string all;
  for (const auto& item : tokens_->items().all())
    all += fmt::format("{} {}\n{}{}\n", item.name.size(), item.id.size(), item.name, item.id);
  return data::sha256(all);
}

std::int64_t Recommendation::generated(std::int64_t group) const {
  return samples_more_ ? generated_for(group) : group;
}

void Recommendation::form_group(std::vector<ScoredCompletion>& completions, const Prompt& prompt,
                                std::int64_t group) const {
  if (samples_more_) {
    std::vector<std::string_view> texts;
    for (const auto& completion : completions) texts.push_back(completion.text);
    std::vector<ScoredCompletion> chosen;
    for (const auto i : varied_completions(texts, prompt.target, static_cast<std::size_t>(group)))
      chosen.push_back(completions[i]);
    completions = std::move(chosen);
  }
  if (!adds_target_ || completions.empty()) return;
  auto& last = completions.back();
  last.tokens = tokens_->completion_of(prompt.target);
  last.text = source_.tokenizer.decode(last.tokens, true);
  last.terminated = true;
  // The model did not generate it, so nothing is known of the sampler.
  last.sampler_log_probs.assign(last.tokens.size(), std::numeric_limits<float>::quiet_NaN());
}

}  // namespace mgpu::rl
