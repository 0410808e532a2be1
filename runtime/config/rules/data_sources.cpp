// The value of dataset_name and eval_dataset: paths, names, and maps in the dialects of axolotl,
// LLaMA-Factory, open-r1 and TRL.

#include "runtime/config/rules/data_sources.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

using rendezvous::shown;

// The prompts of axolotl's type alpaca, which are text even if the model has a chat template.
constexpr const char* kAlpacaPrompt =
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n### Instruction:\n"
    "{instruction}\n\n### Input:\n{input}\n\n### Response:\n";
constexpr const char* kAlpacaNoInput =
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\n{instruction}\n\n### Response:\n";

bool has_key(const YamlNode& map, std::string_view key) {
  for (std::size_t i = 0; i + 1 < map.items.size(); i += 2)
    if (map.items[i].text == key) return true;
  return false;
}

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
    } else if (is_llama_factory()) {
      for (const auto& name : to_words(value)) add_source({.path = name});
    } else {
      add_source({.path = to_text(value)});
    }
  }

  // LLaMA-Factory writes several names in one value: a, b
  bool is_llama_factory() const { return setting_.written == "dataset"; }

  void add_source(DataSource source) {
    if (source.path.empty()) return fail("contains an empty path");
    if (is_llama_factory()) source.info_folder = folder_.empty() ? "data" : folder_;
    if (source.path.front() != '/' && !folder_.empty()) {
      source.path = folder_ + "/" + source.path;
      source.is_path = true;
    }
    sources_.push_back(std::move(source));
  }

  // open-r1: datasets, and how many of their rows are held out
  void add_mixture(const YamlNode& map) {
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const auto& key = map.items[i].text;
      const auto& value = map.items[i + 1];
      if (is_null(value)) continue;
      if (key == "datasets") {
        add(value);
      } else if (key == "test_split_size") {
        reading_.config.val_set_size = to_number(value);
        Range{.least = 0}.check(reading_.config.val_set_size);
      } else if (key == "seed" || key == "shuffle") {
        note_order(key);
      } else {
        fail(fmt::format("unknown key {} of a mixture; use datasets or test_split_size",
                         shown(key)));
      }
    }
  }

  void add_map(const YamlNode& map) {
    if (has_key(map, "datasets")) return add_mixture(map);
    DataSource source;
    has_path_ = has_key(map, "path");
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const auto& key = map.items[i].text;
      const auto& value = map.items[i + 1];
      if (is_null(value)) continue;
      if (!read_place(key, value, source) && !read_rows(key, value, source) &&
          !read_column_names(key, value, source))
        fail(fmt::format("unknown key {}; use path, split, weight, type or columns", shown(key)));
    }
    // axolotl: the ending of no file
    if (source.path == "json" || source.path == "csv" || source.path == "text" ||
        source.path == "parquet" || source.path == "arrow") {
      source.file_type = source.path;
      source.path = ".";
      if (source.data_files.empty())
        return fail(fmt::format("path: {} needs data_files", source.file_type));
    }
    add_source(std::move(source));
  }

  // Where the rows are, and which of them are used.
  bool read_place(const std::string& key, const YamlNode& value, DataSource& source) {
    if (key == "subset" || key == "config" || key == "config_name" ||
        (key == "name" && has_path_)) {
      source.subset = to_text(value);
    } else if (key == "path" || key == "id" || key == "name" || key == "file_name") {
      source.path = to_text(value);
    } else if (key == "data_files") {
      source.data_files = to_files(value);
      if (!has_path_) add_files(source);
    } else if (key == "split" || key == "train_on_split") {
      source.split = to_text(value);
    } else if (key == "revision") {
      source.revision = to_text(value);
    } else if (key == "data_dir" || key == "folder") {
      source.data_dir = to_text(value);
    } else if (key == "ds_type") {
      source.file_type = to_text(value);
    } else if (key == "weight") {
      source.weight = to_weight(value);
    } else if (key == "max_samples" || key == "num_samples") {
      source.max_samples = to_whole(value);
      if (source.max_samples < 1)
        throw std::runtime_error(fmt::format("{}: need a number above 0", key));
    } else {
      if (key != "shuffle" && key != "seed") return false;
      note_order(key);
    }
    return true;
  }

  static double to_weight(const YamlNode& value) {
    const double weight = to_number(value);
    try {
      Range{.least = 0, .most = 1000, .above = true}.check(weight);
    } catch (const std::runtime_error& e) {
      throw std::runtime_error(fmt::format("weight: {}", e.what()));
    }
    return weight;
  }

  static std::vector<std::string> to_files(const YamlNode& value) {
    if (!value.is_list()) return {to_text(value)};
    std::vector<std::string> files;
    for (const auto& item : value.items) files.push_back(to_text(item));
    return files;
  }

  // data_files without a path: the files themselves.
  void add_files(DataSource& source) {
    source.path = ".";
    if (source.data_files.size() == 1) {
      source.path = source.data_files.front();
      source.data_files.clear();
    }
  }

  // How the rows are read.
  bool read_rows(const std::string& key, const YamlNode& value, DataSource& source) {
    if (key == "type") {
      read_type(value, source);
    } else if (key == "formatting" || key == "dataset_format" ||
               (key == "format" && to_text(value).find('{') == std::string::npos)) {
      set_format(value, source);
    } else if (key == "field" || key == "text_field") {
      source.text_field = to_text(value);
    } else if (key == "assistant_only_loss") {
      source.assistant_only_loss = to_flag(value);
    } else if (key == "roles_to_train") {
      if (to_words(value) != std::vector<std::string>{"assistant"})
        throw std::runtime_error("roles_to_train: only [assistant] is supported");
      source.assistant_only_loss = true;
    } else if (key == "train_on_eos") {
      if (to_text(value) != "turn")
        throw std::runtime_error("train_on_eos: only turn is supported");
    } else {
      return false;
    }
    return true;
  }

  static bool knows_format(const YamlNode& value) {
    try {
      TrainConfig scratch;
      find_key("dataset_format")->field.set(scratch, value);
      return true;
    } catch (const std::runtime_error&) {
      return false;
    }
  }

  void set_format(const YamlNode& value, DataSource& source) {
    TrainConfig scratch;
    find_key("dataset_format")->field.set(scratch, value);  // checks it
    source.format = scratch.dataset_format;
  }

  // axolotl's types, which compute the loss on the assistant's turns.
  void read_type(const YamlNode& value, DataSource& source) {
    if (value.is_map()) return read_custom_type(value, source);
    const auto type = to_text(value);
    if (type == "alpaca") {
      source.names.prompt_format = kAlpacaPrompt;
      source.names.no_input_format = kAlpacaNoInput;
      return;
    }
    if (!knows_format(value))
      return reading_.lacks(setting_, "the dataset type " + shown(type, 48));
    set_format(value, source);
    if (type == "chat_template" || type == "sharegpt") source.assistant_only_loss = true;
    // Names that axolotl knows without the key roles.
    if (type == "chat_template")
      source.names.roles.insert({{"human", "user"}, {"gpt", "assistant"}});
  }

  void read_custom_type(const YamlNode& map, DataSource& source) {
    source.names.prompt_format = "{instruction} {input} ";
    source.names.no_input_format = "{instruction} ";
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const auto& key = map.items[i].text;
      const auto& value = map.items[i + 1];
      if (is_null(value)) continue;
      if (key == "field") {
        source.text_field = to_text(value);
        source.names.prompt_format.clear();
        source.names.no_input_format.clear();
      } else if (!read_column_names(key, value, source)) {
        throw std::runtime_error(fmt::format("type: unknown key {}", shown(key)));
      }
    }
  }

  void note_order(const std::string& key) {
    reading_.note(setting_, fmt::format("{} has no effect: {} of the recipe is for all datasets",
                                        key, key == "seed" ? "data_seed" : "shuffle_dataset"));
  }

  void fail(const std::string& what) { reading_.error(setting_, what); }

  Reading& reading_;
  const Setting& setting_;
  std::string folder_;
  bool has_path_ = false;
  std::vector<DataSource> sources_;
};

}  // namespace

std::vector<DataSource> read_sources(Reading& reading, const Setting& setting,
                                     const std::string& folder) {
  try {
    return Sources(reading, setting, folder).take();
  } catch (const std::runtime_error& e) {
    reading.error(setting, e.what());
    return {};
  }
}

}  // namespace mgpu::train
