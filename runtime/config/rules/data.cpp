// Rules about the keys of data.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/rules/data_sources.hpp"
#include "runtime/config/rules/rules.hpp"

namespace mgpu::train {
namespace {

// The keys that concern all datasets.
void complete(const TrainConfig& config, const std::string& split,
              std::vector<DataSource>& sources) {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    auto& source = sources[i];
    source.dataset = i;
    source.mixed_as = i;
    if (source.subset.empty()) source.subset = config.dataset_config;
    if (source.split == "train" && !split.empty()) source.split = split;
    if (source.max_samples == 0) source.max_samples = config.max_samples;
  }
}

void sources_rule(Reading& reading) {
  auto& config = reading.config;
  const auto folder = reading.value("dataset_dir", to_text).value_or("");
  if (folder.starts_with("REMOTE:"))
    reading.lacks(*reading.find("dataset_dir"), "a dataset_info.json on the Hub (REMOTE:NAME)");
  if (const auto* training = reading.find("dataset_name"))
    config.dataset_name = read_sources(reading, *training, folder);
  if (const auto* evaluation = reading.find("eval_dataset"))
    config.eval_dataset = read_sources(reading, *evaluation, folder);
  const auto* split = reading.find("dataset_test_split");
  if (split && !reading.find("eval_dataset") && !is_null(split->value)) {
    const auto* strategy = reading.find("eval_strategy");
    if (strategy && strategy->value.text != "no") {
      config.eval_dataset = config.dataset_name;
      for (auto& source : config.eval_dataset) source.split = config.dataset_test_split;
    } else {
      reading.note(*split, "has no effect without eval_strategy");
    }
  }
  complete(config, config.dataset_train_split, config.dataset_name);
  complete(config, "", config.eval_dataset);
  // What the recipe says of the loss holds for all datasets.
  if (reading.find("assistant_only_loss") || reading.find("train_on_inputs"))
    for (auto* sources : {&config.dataset_name, &config.eval_dataset})
      for (auto& source : *sources)
        if (reading.find("assistant_only_loss") || !config.completion_only_loss.value_or(true))
          source.assistant_only_loss.reset();
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

// Best fit changes the order of rows, even if they are not shuffled.
void packing_rule(Reading& reading) {
  const auto& config = reading.config;
  const auto* in_order = reading.find("curriculum_sampling");
  if (!in_order) in_order = reading.find("shuffle_dataset");
  if (in_order && config.packing && !config.shuffle_dataset && config.packing_strategy == "bfd")
    reading.note(*in_order,
                 "packing puts the longest rows of every 16384 first; set packing_strategy: "
                 "sequential to keep the order of rows");
  const auto* strategy = reading.find("packing_strategy");
  if (!strategy) strategy = reading.find("sample_packing_sequentially");
  if (strategy && !config.packing) reading.note(*strategy, "has no effect without packing: true");
}

}  // namespace

void data_rules(Reading& reading) {
  auto& config = reading.config;
  sources_rule(reading);
  config.group_by_length = reading.value("group_by_length", group_by_length).value_or(false);
  split_rule(reading);
  trained_roles_rule(reading);
  packing_rule(reading);
  if (const auto* size = reading.find("val_set_size"))
    if (config.val_set_size > 1 && config.val_set_size != std::floor(config.val_set_size))
      reading.error(*size, "need a fraction below 1 or a whole number of rows");
}

}  // namespace mgpu::train
