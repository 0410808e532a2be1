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

constexpr std::array kSettings = {"shuffle_dataset",     "val_set_size",      "seed",
                                  "data_seed",           "lr_scheduler_type", "lr_scheduler_kwargs",
                                  "warmup_steps",        "learning_rate",     "use_peft",
                                  "neftune_noise_alpha", "mix_strategy",      "interleave_probs"};
constexpr std::array kSftSettings = {"max_length",           "packing",
                                     "group_by_length",      "dataset_format",
                                     "dataset_text_field",   "prompt_template",
                                     "completion_only_loss", "assistant_only_loss",
                                     "packing_strategy",     "dataset_exact_deduplication"};
constexpr std::array kAdapterSettings = {"lora_r",   "lora_alpha",        "use_rslora",
                                         "use_dora", "init_lora_weights", "loraplus_lr_ratio"};
constexpr std::array<std::string_view, 2> kAllowed = {"learning_rate", "total_steps"};

bool is_digest(std::string_view value) {
  return value.size() == 64 && value.find_first_not_of("0123456789abcdef") == value.npos;
}

std::string shown_value(const std::string& value) {
  return value.empty() ? "not set" : rendezvous::shown(value, kWidestValue);
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
  if (config.task == Task::sft)
    for (const auto* name : kSftSettings) add(name);
  if (config.use_peft)
    for (const auto* name : kAdapterSettings) add(name);
  return fingerprint;
}

std::string dataset_digest(const std::vector<DataSource>& sources,
                           const std::vector<std::string>& digests) {
  std::string all;
  for (std::size_t i = 0; i < sources.size(); ++i)
    all += fmt::format("{} x {}{}\n", digests[i], sources[i].weight, choices_of(sources[i]));
  return data::sha256(all);
}

RunChanges changes_between(const Fingerprint& saved, const Fingerprint& now) {
  RunChanges changes;
  for (const auto& [key, after] : now) {
    const auto before = saved.find(key);
    if (before == saved.end() || before->second == after) continue;
    const bool allowed = std::ranges::find(kAllowed, key) != kAllowed.end();
    (allowed ? changes.allowed : changes.other_run)
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
