#include "runtime/config/keys/key_table.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <stdexcept>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::train {
namespace {

std::string folded(std::string_view name) {
  std::string key(name);
  std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::tolower(c));
  });
  return key;
}

std::vector<KeySpec> all_keys() {
  struct Part {
    KeyGroup group;
    std::vector<KeySpec> (*keys)();
  };
  constexpr Part kParts[] = {
      {KeyGroup::model, model_keys},
      {KeyGroup::model, token_keys},
      {KeyGroup::data, data_keys},
      {KeyGroup::data, mixture_keys},
      {KeyGroup::batch, batch_keys},
      {KeyGroup::optimizer, optimizer_keys},
      {KeyGroup::memory, memory_keys},
      {KeyGroup::lora, lora_keys},
      {KeyGroup::evaluation, evaluation_keys},
      {KeyGroup::checkpoints, checkpoint_keys},
      {KeyGroup::logging, logging_keys},
      {KeyGroup::seeds, seed_keys},
      {KeyGroup::launcher, launcher_keys},
      {KeyGroup::grpo, grpo_keys},
      {KeyGroup::other_trainers, ignored_keys},
      {KeyGroup::other_trainers, refused_keys},
      {KeyGroup::other_trainers, missing_keys},
  };
  std::vector<KeySpec> all;
  for (const auto& part : kParts) {
    auto keys = part.keys();
    for (auto& key : keys) {
      key.group = part.group;
      if (key.group == KeyGroup::grpo) key.task = KeyTask::grpo;
      if (key.group == KeyGroup::launcher) key.use = KeyUse::launcher;
    }
    std::move(keys.begin(), keys.end(), std::back_inserter(all));
  }
  return all;
}

using Index = std::map<std::string, const KeySpec*, std::less<>>;

Index indexed(const std::vector<KeySpec>& keys) {
  Index index;
  const auto add = [&](const std::string& name, const KeySpec& key) {
    if (!index.emplace(folded(name), &key).second)
      throw std::logic_error("the key " + name + " is in the table twice");
  };
  for (const auto& key : keys) {
    add(key.name, key);
    for (const auto& alias : key.aliases) add(alias, key);
  }
  return index;
}

const Index& key_index() {
  static const Index index = indexed(config_keys());
  return index;
}

}  // namespace

const std::vector<KeySpec>& config_keys() {
  static const std::vector<KeySpec> keys = all_keys();
  return keys;
}

const KeySpec* find_key(std::string_view name) {
  const auto found = key_index().find(folded(name));
  return found == key_index().end() ? nullptr : found->second;
}

std::string nearest_key(std::string_view name) {
  static const std::vector<std::string> known = [] {
    std::vector<std::string> names;
    for (const auto& key : config_keys())
      names.push_back(key.name);  // first, so that they win a tie
    for (const auto& key : config_keys())
      names.insert(names.end(), key.aliases.begin(), key.aliases.end());
    return names;
  }();
  return rendezvous::nearest(folded(name), known);
}

std::string default_text(const KeySpec& key) {
  if (!key.initial.empty() || !key.field.show) return key.initial;
  return key.field.show(TrainConfig{});
}

std::string_view title(KeyGroup group) {
  switch (group) {
    case KeyGroup::model:
      return "Task and model";
    case KeyGroup::data:
      return "Data";
    case KeyGroup::batch:
      return "Batch size and run length";
    case KeyGroup::optimizer:
      return "Optimizer";
    case KeyGroup::memory:
      return "Precision, memory and parallelism";
    case KeyGroup::lora:
      return "LoRA and 4-bit weights";
    case KeyGroup::evaluation:
      return "Evaluation";
    case KeyGroup::checkpoints:
      return "Checkpoints";
    case KeyGroup::logging:
      return "Logging";
    case KeyGroup::seeds:
      return "Seeds and determinism";
    case KeyGroup::launcher:
      return "Launcher keys";
    case KeyGroup::grpo:
      return "GRPO";
    case KeyGroup::other_trainers:
      return "Keys of other trainers";
  }
  return {};
}

}  // namespace mgpu::train
