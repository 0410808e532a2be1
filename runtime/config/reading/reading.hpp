#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/reading/yaml_read.hpp"

namespace mgpu::train {

// One key of a recipe as it was written.
struct Setting {
  const KeySpec* key = nullptr;
  std::string written;     // the name in the recipe, perhaps an alias
  std::string where;       // "job.yaml:3", or "--set"
  bool overrides = false;  // from --set, which takes precedence over a file
  YamlNode value;
};

// A recipe while it is being read. Rules look up settings here and add errors; nothing throws until
// all rules have run.
class Reading {
 public:
  TrainConfig config;
  std::vector<Setting> settings;
  std::vector<std::string> errors;
  int hints_left = 20;               // unknown keys that still get a "did you mean"
  std::vector<std::string> unknown;  // keys of the file
  bool has_fsdp = false;             // the recipe has the key fsdp, with words
  // What the recipe is about and this program lacks: "f:3: rl: the training method dpo".
  std::vector<std::string> missing;

  // The setting of a key, or null. Marks the key as read by a rule.
  const Setting* find(std::string_view key);

  // The value of a key, converted by `to`. Empty if the key is not set, or if the conversion fails,
  // which adds an error.
  template <class To>
  auto value(std::string_view key, To to)
      -> std::optional<std::decay_t<std::invoke_result_t<To, const YamlNode&>>> {
    const auto* setting = find(key);
    if (!setting) return {};
    return read(*setting, to);
  }

  template <class To>
  auto read(const Setting& setting, To to)
      -> std::optional<std::decay_t<std::invoke_result_t<To, const YamlNode&>>> {
    try {
      return to(setting.value);
    } catch (const std::runtime_error& e) {
      error(setting, e.what());
      return {};
    }
  }

  void error(const Setting& setting, const std::string& what);
  void note(const Setting& setting, const std::string& what);
  // Adds a feature that no other value of the key replaces. Such a recipe gets this line alone:
  // nobody has to correct the rest of it.
  void lacks(const Setting& setting, const std::string& feature);

  // The prefix of a message about a setting: "job.yaml:3: learning_rate".
  static std::string prefix(const Setting& setting);

  // Whether a rule looked the key up. A used key without a field must be read by a rule.
  bool was_read(const KeySpec& key) const;

 private:
  std::vector<const KeySpec*> read_;
};

using ReadFile = std::function<YamlNode(const std::string& path)>;

// The source of settings.
struct Source {
  std::string name;  // file name, or "--set"
  bool allow_unknown = false;
  bool overrides = false;
  ReadFile read_file = read_yaml;  // reads a file that a value names
};

// Adds every key of a recipe's top map, and of the DeepSpeed or accelerate file that it names, to
// `reading`. The keys of sections such as model_init_kwargs count as top-level keys.
void collect_file(Reading& reading, const YamlNode& top, const Source& source);

// Adds "key=value" of the command line; "key.inner=value" changes one value inside a map.
void collect_override(Reading& reading, const std::string& assignment, const Source& source);

// Keeps one setting per meaning: overrides win and equal repetitions are merged. Anything else is
// an error with both places.
void merge_repetitions(Reading& reading);

// Adds the keys of a DeepSpeed or accelerate configuration as recipe settings.
void collect_deepspeed(Reading& reading, const YamlNode& map, const Source& source);

// Adds the recipe settings that `fsdp` or `fsdp_config` mean. Throws if a file cannot be read.
void collect_fsdp(Reading& reading, const Setting& setting, const Source& source);

}  // namespace mgpu::train
