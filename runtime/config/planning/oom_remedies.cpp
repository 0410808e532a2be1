#include "runtime/config/planning/oom_remedies.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <iterator>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/config/grpo_values.hpp"
#include "runtime/config/resolve.hpp"

namespace mgpu::train {
namespace {

constexpr const char* kMicroBatch = "per_device_train_batch_size";
constexpr const char* kRecompute = "gradient_checkpointing";
constexpr const char* kTokens = "micro_batch_tokens";
constexpr const char* kAllWord = "all";
constexpr const char* kLayers = "recomputed_layers";
constexpr const char* kStage = "zero_stage";

int highest_stage(const TrainConfig& config, std::int64_t ranks) {
  if (ranks == 1) return config.zero_stage;
  if (config.gradient_aggregation == Aggregation::median) return 1;
  return config.consistency_check_steps > 0 ? 2 : 3;  // the check compares copies of weights
}

std::string key_of(const OomRemedy& remedy) {
  return remedy.change.substr(0, remedy.change.find(':'));
}

template <class Value>
std::string change_of(const char* key, const Value& value) {
  return fmt::format("{}: {}", key, value);
}

// The number of a change of this key.
std::optional<std::int64_t> number_in(const std::string& change, const char* key) {
  const auto begin = change_of(key, "");
  if (!change.starts_with(begin)) return {};
  std::int64_t number = 0;
  const auto* end = change.data() + change.size();
  const auto [stop, error] = std::from_chars(change.data() + begin.size(), end, number);
  if (error != std::errc() || stop != end) return {};
  return number;
}

// Only of settings that have such a budget.
void set_micro_batch_tokens(TrainConfig& config, std::int64_t tokens) {
  if (tokens > 0) config.grpo[kTokens] = std::to_string(tokens);
}

// Makes a change of what is recomputed, unless the settings need less memory already.
void recompute_more(TrainConfig& config, const std::string& change) {
  auto& way = config.gradient_checkpointing;
  auto& layers = config.recomputed_layers;
  const bool offload = change == change_of(kRecompute, recompute_word(Recompute::offload));
  const bool all = offload || change == change_of(kLayers, kAllWord) ||
                   change == change_of(kRecompute, recompute_word(Recompute::full));
  const auto wanted = all ? kAllLayers : number_in(change, kLayers).value_or(0);
  if (wanted == 0 || wanted < kAllLayers) return;
  if (way == Recompute::no) {
    way = Recompute::full;
    layers = wanted;
  }
  if (offload) way = Recompute::offload;
  if (layers > 0) layers = all ? kAllLayers : std::max(layers, wanted);
}

// The number of recomputed layers of settings with which nothing else was recomputed.
std::int64_t layers_before(const TrainConfig& config) {
  return config.gradient_checkpointing == Recompute::no ? kAllLayers : config.recomputed_layers;
}

// Changes of the recipe that need less memory than the last attempt. It did not fit, so the memory
// is less than its estimate.
std::vector<std::string> smaller_settings(const PlanRequest& request,
                                          const std::vector<std::string>& tried) try {
  const auto last = with_changes(request.config, tried, request.ranks);
  const auto needed = estimate_memory(request.model, last, request.ranks).total();
  auto smaller = request;
  smaller.gpu_bytes = request.gpu_bytes > 0 ? std::min(request.gpu_bytes, needed) : needed;
  return fitting_changes(smaller);
} catch (const RecipeError&) {  // settings for which there is no plan; the lack is the error
  return {};
}

}  // namespace

std::vector<OomRemedy> oom_remedies(const PlanRequest& request) {
  const auto& config = request.config;
  OomRemedy now{
      config.per_device_train_batch_size, micro_batch_tokens(config), config.gradient_checkpointing,
      config.recomputed_layers,           config.zero_stage,          {}};
  std::vector<OomRemedy> all;
  const auto add = [&](const char* key, const auto& value) {
    now.change = change_of(key, value);
    all.push_back(now);
  };
  while (now.micro_batch_tokens > config.max_length) {
    now.micro_batch_tokens = std::max(config.max_length, (now.micro_batch_tokens + 1) / 2);
    add(kTokens, now.micro_batch_tokens);
  }
  while (now.micro_batch_tokens == 0 && now.per_device > 1 && may_divide_micro_batches(config)) {
    now.per_device = (now.per_device + 1) / 2;
    add(kMicroBatch, now.per_device);
  }
  if (now.recompute == Recompute::no) {
    auto failed = request;
    failed.config.per_device_train_batch_size = now.per_device;
    set_micro_batch_tokens(failed.config, now.micro_batch_tokens);
    now.recompute = Recompute::full;
    now.recomputed_layers = layers_after_failure(failed);
    if (now.recomputed_layers > 0)
      add(kLayers, now.recomputed_layers);
    else
      add(kRecompute, recompute_word(now.recompute));
  }
  if (now.recomputed_layers > 0) {
    now.recomputed_layers = kAllLayers;
    add(kLayers, kAllWord);
  }
  if (now.recompute != Recompute::offload) {
    now.recompute = Recompute::offload;
    add(kRecompute, recompute_word(now.recompute));
  }
  while (now.zero_stage < highest_stage(config, request.ranks)) {
    ++now.zero_stage;
    add(kStage, now.zero_stage);
  }
  return all;
}

std::vector<OomRemedy> halvings(const std::vector<OomRemedy>& remedies) {
  std::vector<OomRemedy> found;
  std::ranges::copy_if(remedies, std::back_inserter(found), [](const OomRemedy& remedy) {
    return key_of(remedy) == kMicroBatch || key_of(remedy) == kTokens;
  });
  return found;
}

TrainConfig with_changes(TrainConfig config, const std::vector<std::string>& changes,
                         std::int64_t ranks) {
  const auto highest = highest_stage(config, ranks);
  for (const auto& change : changes) {
    if (const auto size = number_in(change, kMicroBatch);
        size && *size > 0 && may_divide_micro_batches(config))
      config.per_device_train_batch_size = std::min(config.per_device_train_batch_size, *size);
    if (const auto tokens = number_in(change, kTokens); tokens && *tokens > 0)
      set_micro_batch_tokens(config, std::min(micro_batch_tokens(config), *tokens));
    if (const auto stage = number_in(change, kStage))
      config.zero_stage = std::max(config.zero_stage,
                                   static_cast<int>(std::clamp<std::int64_t>(*stage, 0, highest)));
    recompute_more(config, change);
  }
  return config;
}

std::string changed_settings(const TrainConfig& recipe, const TrainConfig& now) {
  std::vector<std::string> changes;
  if (now.per_device_train_batch_size != recipe.per_device_train_batch_size)
    changes.push_back(change_of(kMicroBatch, now.per_device_train_batch_size));
  if (const auto tokens = micro_batch_tokens(now); tokens != micro_batch_tokens(recipe))
    changes.push_back(change_of(kTokens, tokens));
  if (now.gradient_checkpointing != recipe.gradient_checkpointing)
    changes.push_back(change_of(kRecompute, recompute_word(now.gradient_checkpointing)));
  if (now.gradient_checkpointing != Recompute::no && now.recomputed_layers != layers_before(recipe))
    changes.push_back(now.recomputed_layers > 0 ? change_of(kLayers, now.recomputed_layers)
                                                : change_of(kLayers, kAllWord));
  if (now.zero_stage != recipe.zero_stage) changes.push_back(change_of(kStage, now.zero_stage));
  return fmt::format("{}", fmt::join(changes, ", "));
}

std::int64_t pieces_for(const TrainConfig& config, std::int64_t pieces) {
  if (config.packing || micro_batch_tokens(config) > 0) return pieces;
  const auto sequences = static_cast<std::uint64_t>(config.per_device_train_batch_size);
  return std::min(pieces, static_cast<std::int64_t>(std::bit_ceil(sequences)));
}

std::string no_remedy_left(const PlanRequest& request, const std::vector<std::string>& tried) {
  const auto changes = smaller_settings(request, tried);
  return fmt::format(
      "training ran out of memory with every setting that computes the same steps; tried {}; {}",
      tried.empty() ? "nothing, because no setting needs less memory"
                    : fmt::format("{}", fmt::join(tried, "; ")),
      changes.empty()
          ? "use larger GPUs or a smaller model"
          : fmt::format("settings that need less memory: {}", fmt::join(changes, ", or ")));
}

}  // namespace mgpu::train
