#include "runtime/config/planning/oom_remedies.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/config/grpo_choices.hpp"
#include "runtime/config/grpo_values.hpp"

namespace mgpu::train {
namespace {

constexpr const char* kMicroBatch = "per_device_train_batch_size";

int highest_stage(const TrainConfig& config, std::int64_t ranks) {
  if (ranks == 1) return config.zero_stage;
  if (config.gradient_aggregation == Aggregation::median) return 1;
  return config.consistency_check_steps > 0 ? 2 : 3;  // the check compares copies of weights
}

std::string key_of(const OomRemedy& remedy) {
  return remedy.change.substr(0, remedy.change.find(':'));
}

}  // namespace

bool may_divide_micro_batches(const TrainConfig& config) {
  if (config.task != Task::grpo) return true;
  const GrpoValues values(config);
  const bool entropy =
      values.flag("use_adaptive_entropy") || values.number("entropy_coef").value_or(0) != 0;
  const bool mean_of_entropies =
      entropy &&
      values.choice("loss_normalization", loss_normalizations()) != LossNormalization::window;
  return values.choice("loss_type", loss_types()) != LossType::bnpo && !mean_of_entropies &&
         values.number("top_entropy_quantile").value_or(1) >= 1;
}

std::vector<OomRemedy> oom_remedies(const TrainConfig& config, std::int64_t ranks) {
  OomRemedy now{
      config.per_device_train_batch_size, config.gradient_checkpointing, config.zero_stage, {}};
  std::vector<OomRemedy> all;
  const auto add = [&](const char* key, const auto& value) {
    now.change = fmt::format("{}: {}", key, value);
    all.push_back(now);
  };
  while (now.per_device > 1 && may_divide_micro_batches(config)) {
    now.per_device = (now.per_device + 1) / 2;
    add(kMicroBatch, now.per_device);
  }
  for (const auto way : {Recompute::full, Recompute::offload}) {
    if (now.recompute == way || now.recompute == Recompute::offload) continue;
    now.recompute = way;
    add("gradient_checkpointing", recompute_word(way));
  }
  while (now.zero_stage < highest_stage(config, ranks)) {
    ++now.zero_stage;
    add("zero_stage", now.zero_stage);
  }
  return all;
}

std::size_t halvings(const std::vector<OomRemedy>& remedies) {
  return static_cast<std::size_t>(
      std::count_if(remedies.begin(), remedies.end(),
                    [](const OomRemedy& remedy) { return key_of(remedy) == kMicroBatch; }));
}

std::string changes_of(const std::vector<OomRemedy>& remedies, std::size_t count) {
  std::vector<std::string> changes;
  for (std::size_t i = 0; i < std::min(count, remedies.size()); ++i) {
    if (i > 0 && key_of(remedies[i]) == key_of(remedies[i - 1])) changes.pop_back();
    changes.push_back(remedies[i].change);
  }
  return fmt::format("{}", fmt::join(changes, ", "));
}

std::string no_remedy_left(const PlanRequest& request, const std::vector<OomRemedy>& remedies) {
  std::vector<std::string> tried;
  for (const auto& remedy : remedies) tried.push_back(remedy.change);
  auto text = fmt::format(
      "training ran out of memory with every setting that computes the same steps; tried {}",
      tried.empty() ? "nothing, because no setting needs less memory"
                    : fmt::format("{}", fmt::join(tried, "; ")));
  // The last attempt did not fit, so the memory is less than its estimate.
  auto last = request.config;
  if (!remedies.empty()) {
    last.per_device_train_batch_size = remedies.back().per_device;
    last.gradient_checkpointing = remedies.back().recompute;
    last.zero_stage = remedies.back().zero_stage;
  }
  const auto needed = estimate_memory(request.model, last, request.ranks).total();
  auto smaller = request;
  smaller.gpu_bytes = request.gpu_bytes > 0 ? std::min(request.gpu_bytes, needed) : needed;
  const auto changes = fitting_changes(smaller);
  return text + (changes.empty() ? "; use larger GPUs or a smaller model"
                                 : fmt::format("; settings that need less memory: {}",
                                               fmt::join(changes, ", or ")));
}

}  // namespace mgpu::train
