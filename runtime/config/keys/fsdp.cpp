// Translates PyTorch's FSDP, as transformers, axolotl and accelerate write it, into recipe keys.

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/reading/reading.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

using rendezvous::shown;

constexpr const char* kOffload =
    "there is no offloading of weights; use load_in_4bit, or more GPUs with zero_stage: 3";

// Keys without effect: how PyTorch divides a model into units, when it communicates, and how it
// saves.
constexpr std::array kWithoutEffect{
    "version",
    "auto_wrap_policy",
    "transformer_layer_cls_to_wrap",
    "min_num_params",
    "backward_prefetch",
    "backward_prefetch_policy",
    "forward_prefetch",
    "use_orig_params",
    "sync_module_states",
    "cpu_ram_efficient_loading",
    "limit_all_gathers",
    "state_dict_type",
    "final_state_dict_type",
    "save_state_dict_type",
    "xla",
    "xla_fsdp_v2",
    "xla_fsdp_settings",
    "xla_fsdp_grad_ckpt",
};

// What FSDP calls the stages: the words of `fsdp`, and accelerate's names and numbers.
const std::map<std::string, const char*> kStages{
    {"full_shard", "3"}, {"shard_grad_op", "2"}, {"no_shard", "0"}, {"1", "3"}, {"2", "2"},
    {"3", "0"},
};

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

class FsdpReader {
 public:
  FsdpReader(Reading& reading, const Source& source) : reading_(reading), source_(source) {}

  // The value of `fsdp`, such as "full_shard auto_wrap".
  void words(const Setting& setting) {
    for (const auto& word : to_words(setting.value)) {
      const auto known = lower_case(word);
      if (known == "false" || known == "auto_wrap") continue;
      if (known == "offload")
        reading_.error(setting, kOffload);
      else if (known == "true")
        add("zero_stage", setting.written, setting.where, "3");
      else
        stage(known, setting.written, setting.where);
    }
  }

  // The map of `fsdp_config`.
  void map(const YamlNode& map, const Setting& setting) {
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) pair(map.items[i], map.items[i + 1]);
    if (!map.items.empty() && !has_stage_ && !setting.overrides && !reading_.has_fsdp)
      add("zero_stage", setting.written, setting.where, "3");
  }

 private:
  void pair(const YamlNode& key, const YamlNode& value) {
    auto name = lower_case(key.text);
    if (name.starts_with("fsdp_")) name.erase(0, 5);
    const auto where = at_line(source_.name, key.line);
    if (is_null(value)) return;
    if (std::find(kWithoutEffect.begin(), kWithoutEffect.end(), std::string_view(name)) !=
        kWithoutEffect.end())
      return reading_.config.notes.push_back(fmt::format(
          "{}: {}: has no effect: zero_stage decides what is sharded", where, key.text));
    if (name == "sharding_strategy") {
      stage(lower_case(to_text(value)), key.text, where);
    } else if (name == "reshard_after_forward") {
      const auto word = lower_case(to_text(value));
      if (word == "true" || word == "false")
        add("zero_stage", key.text, where, word == "true" ? "3" : "2");
      else
        stage(word, key.text, where);
    } else if (name == "offload_params" || name == "cpu_offload") {
      if (to_flag(value)) refuse(where, key, kOffload);
    } else if (name == "activation_checkpointing") {
      if (to_flag(value)) add("gradient_checkpointing", key.text, where, "true");
    } else {
      refuse(where, key, "is unknown; FSDP is mapped to zero_stage, so leave it out");
    }
  }

  void stage(const std::string& word, const std::string& written, const std::string& where) {
    const auto found = kStages.find(word);
    if (found != kStages.end()) return add("zero_stage", written, where, found->second);
    reading_.errors.push_back(
        fmt::format("{}: {}: {} is not supported; use full_shard, shard_grad_op or no_shard, which "
                    "mean zero_stage 3, 2 and 0",
                    where, written, shown(word, 32)));
  }

  void add(const char* recipe_key, const std::string& written, const std::string& where,
           const char* value) {
    has_stage_ = has_stage_ || std::string_view(recipe_key) == "zero_stage";
    reading_.config.notes.push_back(
        fmt::format("{}: {}: means {}: {}", where, written, recipe_key, value));
    reading_.settings.push_back({find_key(recipe_key),
                                 written,
                                 where,
                                 source_.overrides,
                                 {.kind = YamlNode::Kind::scalar, .text = value}});
  }

  void refuse(const std::string& where, const YamlNode& key, const char* why) {
    reading_.errors.push_back(fmt::format("{}: {}: {}", where, shown(key.text), why));
  }

  Reading& reading_;
  const Source& source_;
  bool has_stage_ = false;
};

}  // namespace

void collect_fsdp(Reading& reading, const Setting& setting, const Source& source) {
  FsdpReader reader(reading, source);
  if (setting.value.is_map()) return reader.map(setting.value, setting);
  if (setting.key->name == "fsdp") return reader.words(setting);
  const auto path = to_text(setting.value);
  if (path.empty()) return;
  const auto top = source.read_file(path);
  if (!top.is_map())
    throw std::runtime_error(fmt::format("{} is not a map of keys and values", shown(path, 300)));
  Source file = source;
  file.name = path;
  FsdpReader(reading, file).map(top, setting);
}

}  // namespace mgpu::train
