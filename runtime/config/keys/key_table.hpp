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
  seeds,
  launcher,
  grpo,
  other_trainers
};

// How this program handles a key.
enum class KeyUse {
  used,      // sets TrainConfig: through its field, or through a rule (rules.hpp) if it has none
  launcher,  // read by mgpu-run, not by this program
  ignored,   // accepted without effect, with a note; `instead`: what happens instead
  refused    // an error, unless the value is harmless; `instead`: what to do
};

enum class KeyTask { any, sft, grpo };

// The definition of one recipe key. Reading, `check`, the templates' test and docs/keys.md all use
// it, so that each key is defined in one place.
struct KeySpec {
  std::string name;
  std::vector<std::string> aliases = {};
  Field field = {};
  std::string help = {};
  std::string initial = {};  // text of the default, if the field does not show it
  std::string value = {};    // the value column of the reference, if there is no field
  std::string sets = {};     // the key that this key is another form of
  std::string instead = {};
  std::string feature = {};  // of a refused key: what this program lacks, if nothing replaces it
  std::vector<std::string> harmless = {};  // accepted values of a refused key
  KeyUse use = KeyUse::used;
  KeyTask task = KeyTask::any;
  KeyGroup group = KeyGroup::model;

  const std::string& meaning() const { return sets.empty() ? name : sets; }
};

// All keys, ordered by group.
const std::vector<KeySpec>& config_keys();

// The key with this name or alias, or null. Dashes equal underscores, and case is ignored.
const KeySpec* find_key(std::string_view name);

// The name or alias nearest to `name`; empty if none is near.
std::string nearest_key(std::string_view name);

// The default as readable text; empty if there is none.
std::string default_text(const KeySpec& key);

std::string_view title(KeyGroup group);

// The parts of the table, in several source files.
std::vector<KeySpec> model_keys();
std::vector<KeySpec> token_keys();
std::vector<KeySpec> data_keys();
std::vector<KeySpec> mixture_keys();
std::vector<KeySpec> batch_keys();
std::vector<KeySpec> optimizer_keys();
std::vector<KeySpec> memory_keys();
std::vector<KeySpec> lora_keys();
std::vector<KeySpec> evaluation_keys();
std::vector<KeySpec> checkpoint_keys();
std::vector<KeySpec> logging_keys();
std::vector<KeySpec> seed_keys();
std::vector<KeySpec> launcher_keys();
std::vector<KeySpec> grpo_keys();
std::vector<KeySpec> ignored_keys();
std::vector<KeySpec> refused_keys();
std::vector<KeySpec> missing_keys();

}  // namespace mgpu::train
