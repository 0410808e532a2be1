#include "runtime/train/fingerprint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/data/digest.hpp"
#include "runtime/train/row_sources.hpp"

namespace mgpu::train {
namespace {

constexpr std::size_t kWidestValue = 60;

constexpr std::array kSettings = {"shuffle_dataset", "val_set_size",      "seed",
                                  "data_seed",       "lr_scheduler_type", "lr_scheduler_kwargs",
                                  "warmup_steps",    "use_peft",          "neftune_noise_alpha",
                                  "mix_strategy",    "interleave_probs"};
constexpr std::array kSftSettings = {"max_length",           "packing",
                                     "group_by_length",      "dataset_format",
                                     "dataset_text_field",   "prompt_template",
                                     "completion_only_loss", "assistant_only_loss",
                                     "packing_strategy",     "dataset_exact_deduplication"};
constexpr std::array kAdapterSettings = {"lora_r",           "lora_alpha", "lora_dropout",
                                         "use_rslora",       "use_dora",   "init_lora_weights",
                                         "loraplus_lr_ratio"};
constexpr std::array kAllowedSettings = {"learning_rate", "optim",      "weight_decay",
                                         "adam_beta1",    "adam_beta2", "adam_epsilon",
                                         "max_grad_norm", "dtype"};
constexpr std::array<std::string_view, 8> kAllowedOfTasks = {
    "lora_dropout", "total_steps", "reward_funcs", "reward_weights",
    "beta",         "loss_type",   "temperature",  "epsilon"};

bool is_digest(std::string_view value) {
  return value.size() == 64 && value.find_first_not_of("0123456789abcdef") == value.npos;
}

std::string shown_value(const std::string& value) {
  return value.empty() ? "not set" : rendezvous::shown(value, kWidestValue);
}

bool is_allowed(std::string_view key) {
  return std::ranges::find(kAllowedSettings, key) != kAllowedSettings.end() ||
         std::ranges::find(kAllowedOfTasks, key) != kAllowedOfTasks.end();
}

// In any order, which does not matter.
std::string module_list(std::vector<std::string> names) {
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return fmt::format("{}", fmt::join(names, " "));
}

std::string change_of(const std::string& key, const std::string& saved, const std::string& now) {
  if (is_digest(saved) && is_digest(now)) return fmt::format("{} has other contents", key);
  return fmt::format("{} was {} and is now {}", key, shown_value(saved), shown_value(now));
}

}  // namespace

Fingerprint settings_fingerprint(const TrainConfig& config) {
  Fingerprint fingerprint;
  const auto add = [&](const char* name) {
    const auto* key = find_key(name);
    if (key == nullptr || !key->field.show)
      throw std::logic_error(fmt::format("no key shows the value of {}", name));
    fingerprint[name] = key->field.show(config);
  };
  for (const auto* name : kSettings) add(name);
  for (const auto* name : kAllowedSettings) add(name);
  if (config.task == Task::sft)
    for (const auto* name : kSftSettings) add(name);
  if (!config.use_peft) return fingerprint;
  for (const auto* name : kAdapterSettings) add(name);
  fingerprint["lora_target_modules"] =
      config.lora_target_modules.empty() ? "all" : module_list(config.lora_target_modules);
  fingerprint["lora_modules_to_save"] = module_list(config.lora_modules_to_save);
  return fingerprint;
}

std::string dataset_digest(const std::vector<DataSource>& sources,
                           const std::vector<std::string>& digests) {
  std::string all;
  for (std::size_t i = 0; i < sources.size(); ++i)
    all += fmt::format("{} x {}{}\n", digests[i], sources[i].weight, choices_of(sources[i]));
  return data::sha256(all);
}

std::string weights_digest(const checkpoint::Weights& weights) {
  // Enough that no two models in use have the same: a read may take a while on a network disk.
  constexpr std::size_t kTensors = 64, kBytes = 256;
  const auto names = weights.names();
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto tensor = weights.get(names[i]);
    text += fmt::format("{} {} {}\n", names[i], checkpoint::name_of(tensor.dtype),
                        fmt::join(tensor.shape, " "));
    // True for kTensors indices, evenly spread.
    if (i * kTensors / names.size() == (i + 1) * kTensors / names.size()) continue;
    const auto& bytes = tensor.bytes;
    const auto part =
        bytes.subspan(bytes.size() / 2, std::min(kBytes, bytes.size() - bytes.size() / 2));
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return data::sha256(text);
}

std::vector<std::string> differences_between(const Fingerprint& one, const Fingerprint& other) {
  std::vector<std::string> differences;
  for (const auto& [key, value] : one) {
    const auto found = other.find(key);
    const std::string theirs = found == other.end() ? "" : found->second;
    if (value == theirs) continue;
    differences.push_back(
        is_digest(value) && is_digest(theirs)
            ? fmt::format("{} has different contents", key)
            : fmt::format("{} is {} and {}", key, shown_value(value), shown_value(theirs)));
  }
  for (const auto& [key, value] : other)
    if (!one.contains(key))
      differences.push_back(fmt::format("{} is not set and {}", key, shown_value(value)));
  return differences;
}

RunChanges changes_between(const Fingerprint& saved, const Fingerprint& now) {
  RunChanges changes;
  for (const auto& [key, after] : now) {
    const auto before = saved.find(key);
    if (before == saved.end() || before->second == after) continue;
    (is_allowed(key) ? changes.allowed : changes.other_run)
        .push_back(change_of(key, before->second, after));
  }
  return changes;
}

std::vector<std::string> check_same_run(const std::string& checkpoint, const Fingerprint& saved,
                                        const Fingerprint& now, bool accepts_changes) {
  if (saved.empty())
    return {
        fmt::format("{} does not record its data and settings, because an earlier version of "
                    "mgpu-train saved it: they are not compared with those of this run",
                    checkpoint)};
  const auto changes = changes_between(saved, now);
  if (!changes.other_run.empty() && !accepts_changes)
    throw_recipe_error(fmt::format(
        "{} belongs to another run: {}; restore these, set resume_from_checkpoint: no to start "
        "over, or resume_with_changes: true to continue anyway",
        checkpoint, fmt::join(changes.other_run, ", ")));
  std::vector<std::string> notes;
  for (const auto* list : {&changes.other_run, &changes.allowed})
    for (const auto& change : *list)
      notes.push_back(fmt::format("since {}: {}", checkpoint, change));
  return notes;
}

}  // namespace mgpu::train
