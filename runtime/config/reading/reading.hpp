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

// One key as it was said: under which name, where, and what.
struct Setting {
  const KeySpec* key = nullptr;
  std::string written;
  std::string where;       // "job.yaml:3", or "--set"
  bool overrides = false;  // from --set: it wins over a file
  YamlNode value;
};

// A recipe while it is being understood. Rules take from it what was said, and add to it what
// is wrong; nothing throws before everything was looked at.
class Reading {
 public:
  TrainConfig config;
  std::vector<Setting> settings;
  std::vector<std::string> errors;
  int hints_left = 20;  // unknown keys that are still compared with every name there is

  // The setting of a key; null when nobody said it. Marks it as read by a rule.
  const Setting* find(std::string_view key);

  // Its value as `to` reads it; nothing when it was not said, or when it is wrong, which is
  // then an error.
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

  // "job.yaml:3: learning_rate", what a line about a setting begins with.
  static std::string blame(const Setting& setting);

  // Whether a rule looked for the key; a used key without a field that none reads is our mistake.
  bool was_read(const KeySpec& key) const;

 private:
  std::vector<const KeySpec*> read_;
};

using ReadFile = std::function<YamlNode(const std::string& path)>;

// Where settings come from.
struct Source {
  std::string name;  // of the file, or "--set"
  bool allow_unknown = false;
  bool overrides = false;
  ReadFile read_file = read_yaml;  // for a file that a value names
};

// Adds every key of a recipe's top map, and of the DeepSpeed or accelerate file it names, to
// `reading`. Sections such as model_init_kwargs are opened.
void collect_file(Reading& reading, const YamlNode& top, const Source& source);

// Adds "key=value" of a command line; "key.inner=value" changes one value inside a map.
void collect_override(Reading& reading, const std::string& assignment, const Source& source);

// Leaves one setting of each meaning: overrides win, the same said twice is once, anything else
// is an error.
void settle_repetitions(Reading& reading);

// The keys of a DeepSpeed or accelerate configuration as settings of ours.
void collect_deepspeed(Reading& reading, const YamlNode& map, const Source& source);

}  // namespace mgpu::train
