#include "runtime/config/reading/reading.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

using rendezvous::shown;

// Maps that only group keys; the same keys are accepted at the top level.
const std::set<std::string> kSections{
    "model_init_kwargs",
    "quantization_config",
    "bnb_config",
    "peft_config",
    "lora_config",
    "optimizer_config",
    "training_arguments",
    "training_args",
    "sft_config",
    "grpo_config",
    "trl",
    "vllm",
    "model",
    "data",
    "training",
    "lora",
    "optimizer",
};

// Adds the settings of one source: a file, or the overrides of the command line.
class Collector {
 public:
  Collector(Reading& reading, const Source& source) : reading_(reading), source_(source) {}

  void add_map(const YamlNode& map, const std::string& section = {}) {
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2)
      if (map.items[i].text == "fsdp") reading_.has_fsdp = names_something(map.items[i + 1]);
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2)
      add(map.items[i], map.items[i + 1], section);
  }

  void add(const YamlNode& key, const YamlNode& value, const std::string& section) {
    if (value.is_map() && section.empty() && kSections.count(key.text)) {
      add_map(value, key.text);
      return;
    }
    if (value.is_map() && section == "optimizer_config" && key.text == "kwargs") {
      add_map(value, section);
      return;
    }
    const auto written = full_name(key.text, section);
    const auto* spec = find_key(written);
    if (!spec) {
      if (is_null(value) && kSections.count(key.text)) return;
      unknown(key);
      return;
    }
    Setting setting{spec, shown(key.text), where(key), source_.overrides, value};
    // An empty value in a file is the default. An empty override removes the setting of the file.
    if (is_null(value) && !source_.overrides) return;
    if (spec->name == "deepspeed" && !is_null(value))
      add_deepspeed(setting);
    else if ((spec->name == "fsdp" || spec->name == "fsdp_config") && !is_null(value))
      add_fsdp(setting);
    else
      reading_.settings.push_back(std::move(setting));
  }

 private:
  static bool names_something(const YamlNode& value) {
    return value.kind == YamlNode::Kind::scalar ? !is_null(value) && !value.text.empty()
                                                : !value.items.empty();
  }

  std::string where(const YamlNode& key) const {
    return source_.overrides ? source_.name : at_line(source_.name, key.line);
  }

  // Some sections use short forms of keys.
  static std::string full_name(const std::string& key, const std::string& section) {
    if (section == "optimizer_config" || section == "optimizer") {
      if (key == "class" || key == "type" || key == "name") return "optim";
    }
    if (section == "vllm" && (key == "host" || key == "port")) return "vllm_server_" + key;
    if (section == "vllm" && find_key("vllm_" + key)) return "vllm_" + key;
    if (section == "lora" || section == "lora_config" || section == "peft_config") {
      if (key == "alpha" || key == "dropout" || key == "rank") return "lora_" + key;
    }
    return key;
  }

  void unknown(const YamlNode& key) {
    const auto near = reading_.hints_left > 0 ? nearest_key(key.text) : std::string();
    auto line = fmt::format("{}: unknown key {}", where(key), shown(key.text));
    if (reading_.hints_left > 0) --reading_.hints_left;
    if (!source_.overrides) reading_.unknown.push_back(shown(key.text, 32));
    if (!near.empty()) line += fmt::format("; did you mean {}?", near);
    if (source_.allow_unknown)
      reading_.config.notes.push_back(line + " (no effect)");
    else
      reading_.errors.push_back(std::move(line));
  }

  void add_deepspeed(const Setting& setting) {
    try {
      if (setting.value.is_map()) {
        collect_deepspeed(reading_, setting.value, source_);
        return;
      }
      const auto path = to_text(setting.value);
      if (path.empty()) return;
      const auto top = source_.read_file(path);
      if (!top.is_map())
        throw std::runtime_error(
            fmt::format("{} is not a map of keys and values", shown(path, 300)));
      Source file = source_;
      file.name = path;
      collect_deepspeed(reading_, top, file);
    } catch (const std::runtime_error& e) {
      reading_.error(setting, e.what());
    }
  }

  void add_fsdp(const Setting& setting) {
    try {
      collect_fsdp(reading_, setting, source_);
    } catch (const std::runtime_error& e) {
      reading_.error(setting, e.what());
    }
  }

  Reading& reading_;
  const Source& source_;
};

// Sets one value inside a map, replacing an existing one.
void put_inner(YamlNode& map, const std::string& name, YamlNode value) {
  for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
    if (map.items[i].text != name) continue;
    map.items[i + 1] = std::move(value);
    return;
  }
  map.items.push_back({.kind = YamlNode::Kind::scalar, .text = name});
  map.items.push_back(std::move(value));
}

// For "lr_scheduler_kwargs.min_lr_rate" and a value: the whole current map with one value changed.
YamlNode outer_value(const Reading& reading, const KeySpec& key, const std::string& inner,
                     YamlNode value) {
  YamlNode map{.kind = YamlNode::Kind::map};
  for (const auto& setting : reading.settings)
    if (setting.key == &key && setting.value.is_map()) map = setting.value;
  put_inner(map, inner, std::move(value));
  return map;
}

// "auto" leaves the decision to another place, such as a DeepSpeed file.
bool is_auto_precision(const Setting& setting) {
  const auto& name = setting.key->name;
  return (name == "bf16" || name == "fp16") && setting.value.text == "auto";
}

// Whether `yes` turns a precision on by another name, as axolotl's float16 beside fp16: false.
bool is_other_name_of(const Setting& yes, const Setting& no) {
  const auto& name = yes.key->name;
  return yes.key == no.key && (name == "bf16" || name == "fp16") && yes.written != no.written &&
         (yes.value.text == "true" || yes.value.text == "True") &&
         (no.value.text == "false" || no.value.text == "False");
}

// Whether `kind` is a kind of recomputation and `on` only turns recomputation on. Recipes of
// unsloth have both, under two names of one key.
bool is_kind_of(const Setting& kind, const Setting& on) {
  if (on.key != kind.key || on.key->name != "gradient_checkpointing") return false;
  const auto& text = on.value.text;
  return (text == "true" || text == "True") &&
         (kind.value.text == "unsloth" || kind.value.text == "offload");
}

}  // namespace

const Setting* Reading::find(std::string_view name) {
  const auto* key = find_key(name);
  if (!key) throw std::logic_error(fmt::format("the key {} is not in the table", name));
  read_.push_back(key);
  for (const auto& setting : settings)
    if (setting.key == key) return &setting;
  return nullptr;
}

bool Reading::was_read(const KeySpec& key) const {
  return std::find(read_.begin(), read_.end(), &key) != read_.end();
}

std::string Reading::prefix(const Setting& setting) {
  return fmt::format("{}: {}", setting.where, setting.written);
}

void Reading::error(const Setting& setting, const std::string& what) {
  errors.push_back(fmt::format("{}: {}", prefix(setting), what));
}

void Reading::note(const Setting& setting, const std::string& what) {
  config.notes.push_back(fmt::format("{}: {}", prefix(setting), what));
}

void Reading::lacks(const Setting& setting, const std::string& feature) {
  missing.push_back(fmt::format("{}: {}", prefix(setting), feature));
}

void collect_file(Reading& reading, const YamlNode& top, const Source& source) {
  Collector(reading, source).add_map(top);
}

void collect_override(Reading& reading, const std::string& assignment, const Source& source) {
  const auto equals = assignment.find('=');
  if (equals == assignment.npos || equals == 0) {
    reading.errors.push_back(fmt::format("--set: need KEY=VALUE, not {}", shown(assignment)));
    return;
  }
  try {
    auto value = parse_yaml(assignment.substr(equals + 1), source.name);
    auto name = assignment.substr(0, equals);
    const auto dot = name.find('.');
    if (dot != name.npos && kSections.count(name.substr(0, dot))) {  // the section is optional
      name.erase(0, dot + 1);
    } else if (dot != name.npos) {
      const auto inner = name.substr(dot + 1);
      name.erase(dot);
      if (const auto* key = find_key(name))
        value = outer_value(reading, *key, inner, std::move(value));
    }
    const YamlNode key{.kind = YamlNode::Kind::scalar, .text = name};
    Collector(reading, source).add(key, value, {});
  } catch (const std::runtime_error& e) {
    reading.errors.push_back(
        fmt::format("--set {}: {}", shown(assignment.substr(0, equals)), e.what()));
  }
}

void merge_repetitions(Reading& reading) {
  std::vector<Setting> merged;
  for (auto& setting : reading.settings) {
    const auto same_meaning = [&](const Setting& other) {
      return other.key->meaning() == setting.key->meaning();
    };
    if (setting.overrides)
      std::erase_if(merged, [&](const Setting& s) { return same_meaning(s) && !s.overrides; });
    // The names of a key without effect need not mean the same.
    if (setting.key->use != KeyUse::used && !setting.overrides) {
      merged.push_back(std::move(setting));
      continue;
    }
    // Two keys with one meaning and a field each: no rule compares them.
    const auto earlier = std::find_if(merged.begin(), merged.end(), [&](const Setting& other) {
      return other.key == setting.key ||
             (same_meaning(other) && other.key->field.set && setting.key->field.set);
    });
    if (earlier == merged.end()) {
      merged.push_back(std::move(setting));
    } else if (setting.overrides && earlier->key == setting.key) {
      *earlier = std::move(setting);  // of two --set the last one wins
    } else if (is_kind_of(setting, *earlier) || is_auto_precision(*earlier) ||
               is_other_name_of(setting, *earlier)) {
      *earlier = std::move(setting);
    } else if (is_kind_of(*earlier, setting) || is_auto_precision(setting) ||
               is_other_name_of(*earlier, setting)) {
      continue;
    } else if (earlier->key != setting.key ||
               flow_text(earlier->value) != flow_text(setting.value)) {
      reading.error(setting, fmt::format("means the same as {} ({}); keep one", earlier->written,
                                         earlier->where));
    }
  }
  std::erase_if(merged, [](const Setting& s) { return is_null(s.value); });
  reading.settings = std::move(merged);
}

}  // namespace mgpu::train
