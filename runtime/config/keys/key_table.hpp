#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/keys/key_fields.hpp"

namespace mgpu::train {

enum class KeyGroup {
  model,
  data,
  batch,
  optimizer,
  memory,
  lora,
  evaluation,
  checkpoints,
  logging,
  chance,
  launcher,
  grpo,
  elsewhere
};

// What becomes of a key.
enum class KeyUse {
  used,      // it goes into TrainConfig: by its field, or by a rule (rules.hpp) if it has none
  launcher,  // mgpu-run reads it, not this program
  noted,     // accepted and without effect; `instead` says what is done
  refused    // an error, `instead` says what to do; unless the value asks for nothing
};

enum class KeyTask { any, sft, grpo };

// Everything there is to know of one key of a recipe. Reading, --check, the templates' test and
// docs/training.md are all served from here, so that a key is written down once.
struct KeySpec {
  std::string name;
  std::vector<std::string> aliases = {};
  Field field = {};
  std::string help = {};
  std::string initial = {};  // the default in words, where the field does not show one
  std::string value = {};    // what the reference calls the value, where there is no field
  std::string sets = {};     // the key of which this is another way to speak
  std::string instead = {};
  std::vector<std::string> harmless = {};  // values of a refused key that ask for nothing
  KeyUse use = KeyUse::used;
  KeyTask task = KeyTask::any;
  KeyGroup group = KeyGroup::model;

  const std::string& meaning() const { return sets.empty() ? name : sets; }
};

// The whole table, by groups.
const std::vector<KeySpec>& config_keys();

// The key of this name or alias, with dashes or underscores, in any case; null when there is none.
const KeySpec* find_key(std::string_view name);

// The name or alias that `name` was most likely meant to be; empty: none is near.
std::string nearest_key(std::string_view name);

// The default as a person reads it; empty: none.
std::string default_text(const KeySpec& key);

std::string_view title(KeyGroup group);

// The parts of the table, each in its own file.
std::vector<KeySpec> model_keys();
std::vector<KeySpec> data_keys();
std::vector<KeySpec> batch_keys();
std::vector<KeySpec> optimizer_keys();
std::vector<KeySpec> memory_keys();
std::vector<KeySpec> lora_keys();
std::vector<KeySpec> evaluation_keys();
std::vector<KeySpec> checkpoint_keys();
std::vector<KeySpec> logging_keys();
std::vector<KeySpec> chance_keys();
std::vector<KeySpec> launcher_keys();
std::vector<KeySpec> grpo_keys();
std::vector<KeySpec> noted_keys();
std::vector<KeySpec> refused_keys();

}  // namespace mgpu::train
