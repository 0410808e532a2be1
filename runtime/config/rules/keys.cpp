// Which task a recipe is for, and which of its keys go where.

#include <algorithm>

#include <fmt/format.h>

#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/rules/rules.hpp"

namespace mgpu::train {
namespace {

const Words<Task> kTasks{
    {"sft", Task::sft}, {"grpo", Task::grpo}, {"pt", Task::sft}, {"gspo", Task::grpo}};

// Whether the value of a refused key asks for nothing.
bool asks_for_nothing(const KeySpec& key, const YamlNode& value) {
  if (value.kind != YamlNode::Kind::scalar) return value.items.empty();
  const auto among = [&](const std::string& word) {
    return std::find(key.harmless.begin(), key.harmless.end(), word) != key.harmless.end();
  };
  if (among(value.text)) return true;
  if (among("true")) return false;  // where true asks for nothing, false asks for something
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

// Under sft the loss is the likelihood; of GRPO's losses that share the key nothing is meant.
void check_sft_loss(Reading& reading, const Setting& setting) {
  if (setting.value.text == "dft")
    reading.error(setting, "dft is not supported; leave it out, the loss is nll");
}

bool keep(Reading& reading, const Setting& setting) {
  const auto& key = *setting.key;
  const bool grpo = reading.config.task == Task::grpo;
  switch (key.use) {
    case KeyUse::launcher:
      if (key.name != "launch")
        reading.note(setting, fmt::format("is the launcher's: {}", key.instead));
      return false;
    case KeyUse::noted:
      reading.note(setting, fmt::format("has no effect: {}", key.instead));
      return false;
    case KeyUse::refused:
      if (!asks_for_nothing(key, setting.value))
        reading.error(setting, fmt::format("cannot be honoured: {}", key.instead));
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

void decide_task(Reading& reading) {
  if (reading.find("task")) {
    const auto task = reading.value("task", [](const YamlNode& v) { return choose(v, kTasks); });
    reading.config.task = task.value_or(Task::sft);
  } else if (reading.find("reward_funcs") || reading.find("num_generations")) {
    reading.config.task = Task::grpo;
  }
  if (reading.config.task == Task::grpo) reading.config.learning_rate = 1e-6;
}

void sort_out(Reading& reading) {
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
      notes[i] = fmt::format("{}: {}", Reading::blame(setting), notes[i]);
  }
}

}  // namespace mgpu::train
