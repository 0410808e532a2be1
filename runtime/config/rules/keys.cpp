// Decides the task of a recipe and what happens to each of its keys.

#include <algorithm>

#include <fmt/format.h>

#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/rules/rules.hpp"

namespace mgpu::train {
namespace {

// Whether the value of a refused key switches the feature off.
bool is_harmless(const KeySpec& key, const YamlNode& value) {
  if (value.kind != YamlNode::Kind::scalar) return value.items.empty();
  const auto among = [&](const std::string& word) {
    return std::find(key.harmless.begin(), key.harmless.end(), word) != key.harmless.end();
  };
  if (among(value.text)) return true;
  if (among("true")) return false;  // true is the harmless value, so false is not
  for (const char* nothing : {"", "false", "False", "no", "none", "None", "off", "0"})
    if (value.text == nothing) return true;
  return false;
}

void check_type(Reading& reading, const Setting& setting) {
  TrainConfig unused;
  try {
    if (setting.key->field.set) setting.key->field.set(unused, setting.value);
  } catch (const std::runtime_error& e) {
    reading.error(setting, e.what());
  }
}

// With sft the loss is the negative log-likelihood. GRPO's losses share this key and are ignored.
void check_sft_loss(Reading& reading, const Setting& setting) {
  if (setting.value.text == "dft")
    reading.error(setting, "dft is not supported; leave it out: the loss is nll");
}

// Why a launcher key does nothing here. mgpu-run passes --set on without reading it.
std::string launcher_note(const Setting& setting) {
  const auto& instead = setting.key->instead;
  const auto option = instead.find("its option ");
  if (!setting.overrides || option == instead.npos)
    return fmt::format("is a launcher key: {}", instead);
  return fmt::format("is a launcher key, which mgpu-run does not read from --set; use {}",
                     instead.substr(option));
}

bool keep(Reading& reading, const Setting& setting) {
  const auto& key = *setting.key;
  const bool grpo = reading.config.task == Task::grpo;
  switch (key.use) {
    case KeyUse::launcher:
      if (key.name != "launch") reading.note(setting, launcher_note(setting));
      if (key.name == "launch" && setting.overrides)
        reading.note(setting,
                     "has no effect: mgpu-run reads launch: only from the file; use its options");
      return false;
    case KeyUse::ignored:
      reading.note(setting, fmt::format("has no effect: {}", key.instead));
      return false;
    case KeyUse::refused:
      if (is_harmless(key, setting.value)) return false;
      if (!key.feature.empty())
        reading.lacks(setting, key.feature);
      else
        reading.error(setting, fmt::format("is not supported: {}", key.instead));
      return false;
    case KeyUse::used:
      break;
  }
  if (key.task == KeyTask::any || (key.task == KeyTask::grpo) == grpo) {
    if (key.task != KeyTask::grpo) return true;
    check_type(reading, setting);
    reading.config.grpo[key.name] = flow_text(setting.value);
    return false;
  }
  if (!grpo && key.name == "loss_type") {
    check_sft_loss(reading, setting);
    if (setting.value.text == "nll" || setting.value.text == "chunked_nll") return false;
  }
  reading.config.other_task[key.name] = flow_text(setting.value);
  reading.note(setting,
               fmt::format("is a key of task {} and has no effect", grpo ? "sft" : "grpo"));
  return false;
}

}  // namespace

void dispatch_settings(Reading& reading) {
  std::vector<Setting> kept;
  for (auto& setting : reading.settings)
    if (keep(reading, setting)) kept.push_back(std::move(setting));
  reading.settings = std::move(kept);
}

void apply_fields(Reading& reading) {
  auto& notes = reading.config.notes;
  for (const auto& setting : reading.settings) {
    if (!setting.key->field.set) continue;
    const auto before = notes.size();
    try {
      setting.key->field.set(reading.config, setting.value);
    } catch (const std::runtime_error& e) {
      reading.error(setting, e.what());
    }
    for (auto i = before; i < notes.size(); ++i)
      notes[i] = fmt::format("{}: {}", Reading::prefix(setting), notes[i]);
  }
}

}  // namespace mgpu::train
