// Rules about the keys of data.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/rules/rules.hpp"

namespace mgpu::train {
namespace {

using rendezvous::shown;

// Reads the sources of dataset_name or eval_dataset.
class Sources {
 public:
  Sources(Reading& reading, const Setting& setting, std::string folder)
      : reading_(reading), setting_(setting), folder_(std::move(folder)) {}

  std::vector<DataSource> take() {
    add(setting_.value);
    if (sources_.empty()) reading_.error(setting_, "names no file; set it to a path");
    return std::move(sources_);
  }

 private:
  void add(const YamlNode& value) {
    if (value.is_list()) {
      for (const auto& item : value.items)
        item.is_list() ? fail("contains a list inside a list; use one list of files") : add(item);
    } else if (value.is_map()) {
      add_map(value);
    } else if (setting_.written == "dataset") {
      for (const auto& name : to_words(value)) add_path(name);  // LLaMA-Factory: a, b
    } else {
      add_path(to_text(value));
    }
  }

  void add_path(const std::string& path) { add_source({.path = path}); }

  void add_source(DataSource source) {
    if (source.path.empty()) return fail("contains an empty path");
    if (source.path.front() != '/' && !folder_.empty()) {
      source.path = folder_ + "/" + source.path;
      source.is_path = true;
    }
    if (source.split != "train" && is_file(source.path))
      fail("a file has no splits; set the path to another file");
    sources_.push_back(std::move(source));
  }

  static bool is_file(const std::string& path) {
    return path.ends_with(".jsonl") || path.ends_with(".json") || path.starts_with('.') ||
           path.starts_with('/');
  }

  void add_map(const YamlNode& map) {
    DataSource source;
    const bool has_path = std::any_of(map.items.begin(), map.items.end(),
                                      [](const auto& item) { return item.text == "path"; });
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const auto& key = map.items[i].text;
      const auto& value = map.items[i + 1];
      if (is_null(value)) continue;
      if (key == "datasets") return add(value);  // a mixture
      if (key == "subset" || (key == "name" && has_path)) {
        source.subset = to_text(value);
      } else if (key == "path" || key == "id" || key == "name" || key == "data_files") {
        source.path = to_text(value);
      } else if (key == "split") {
        source.split = to_text(value);
      } else if (key == "revision") {
        source.revision = to_text(value);
      } else if (key == "weight") {
        source.weight = to_number(value);
        Range{.least = 0, .most = 1000, .above = true}.check(source.weight);
      } else {
        inner(key, value);
      }
    }
    add_source(std::move(source));
  }

  // Other keys of dataset maps in axolotl and surogate.
  void inner(const std::string& key, const YamlNode& value) {
    auto& config = reading_.config;
    if (key == "type" || key == "format" || key == "field" || key == "text_field") {
      const auto* spec =
          find_key(key == "type" || key == "format" ? "dataset_format" : "dataset_text_field");
      spec->field.set(config, value);
    } else if (key == "ds_type") {
      if (value.text != "json" && value.text != "jsonl") fail("only JSONL files are supported");
    } else if (key != "shuffle" && key != "seed") {
      fail(fmt::format("unknown key {}; use path, weight, type or field", shown(key)));
    }
  }

  void fail(const std::string& what) { reading_.error(setting_, what); }

  Reading& reading_;
  const Setting& setting_;
  std::string folder_;
  std::vector<DataSource> sources_;
};

std::vector<DataSource> sources(Reading& reading, const char* key, const std::string& folder) {
  const auto* setting = reading.find(key);
  if (!setting) return {};
  try {
    return Sources(reading, *setting, folder).take();
  } catch (const std::runtime_error& e) {
    reading.error(*setting, e.what());
    return {};
  }
}

bool group_by_length(const YamlNode& value) {
  if (value.text == "group_by_length") return true;
  return value.text != "random" && to_flag(value);
}

void split_rule(Reading& reading) {
  const auto* setting = reading.find("train_split");
  if (!setting || setting->value.text == "train") return;
  const auto part = reading.read(*setting, to_number);
  if (!part) return;
  if (*part <= 0 || *part > 1)
    return reading.error(*setting, "need a fraction above 0 and at most 1");
  if (const auto* size = reading.find("val_set_size"))
    return reading.error(
        *setting, fmt::format("means the same as {} ({}); keep one", size->written, size->where));
  reading.config.val_set_size =
      std::round((1 - *part) * 1e9) / 1e9;  // 0.05, not 0.05000000000000004
}

void trained_roles_rule(Reading& reading) {
  const auto* setting = reading.find("roles_to_train");
  if (!setting) return;
  const auto roles = reading.read(*setting, to_words);
  if (!roles) return;
  if (*roles != std::vector<std::string>{"assistant"})
    return reading.error(*setting, "only [assistant] is supported");
  const auto* only = reading.find("assistant_only_loss");
  if (only && !reading.config.assistant_only_loss)
    return reading.error(*setting, "contradicts assistant_only_loss: false; keep one");
  reading.config.assistant_only_loss = true;
}

}  // namespace

void data_rules(Reading& reading) {
  auto& config = reading.config;
  const auto folder = reading.value("dataset_dir", to_text).value_or("");
  config.dataset_name = sources(reading, "dataset_name", folder);
  config.eval_dataset = sources(reading, "eval_dataset", folder);
  config.group_by_length = reading.value("group_by_length", group_by_length).value_or(false);
  split_rule(reading);
  trained_roles_rule(reading);
  if (!reading.find("eval_packing")) config.eval_packing = config.packing;
  if (const auto* strategy = reading.find("packing_strategy"))
    if (strategy->value.text != "bfd" && strategy->value.text != "ffd")
      reading.error(*strategy, "only bfd (best fit) is supported");
  if (const auto* size = reading.find("val_set_size"))
    if (config.val_set_size > 1 && config.val_set_size != std::floor(config.val_set_size))
      reading.error(*size, "need a fraction below 1 or a whole number of rows");
}

}  // namespace mgpu::train
