#include "runtime/train/row_sources.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <string>

namespace mgpu::train {

data::RowOptions row_options(const TrainConfig& config, const DataSource& source,
                             std::int64_t vocabulary) {
  data::RowOptions rows;
  rows.format = source.format.empty() ? config.dataset_format : source.format;
  rows.text_field = source.text_field.empty() ? config.dataset_text_field : source.text_field;
  rows.prompt_template = config.prompt_template;
  rows.completion_only_loss = config.completion_only_loss;
  rows.assistant_only_loss = source.assistant_only_loss.value_or(config.assistant_only_loss);
  rows.vocabulary = vocabulary;
  const auto& names = source.names;
  rows.mapping = {.columns = names.columns,
                  .message_fields = names.message_fields,
                  .roles = names.roles,
                  .prompt_format = names.prompt_format,
                  .no_input_format = names.no_input_format,
                  .system_format = names.system_format,
                  .system_text = names.system_text};
  return rows;
}

data::RowRange row_range(const DataSource& source) {
  auto range = data::parse_split(source.split).front().range;
  range.most = source.max_samples;
  return range;
}

std::vector<data::Source> row_sources(const TrainConfig& config,
                                      const std::vector<DataSource>& sources,
                                      std::int64_t vocabulary) {
  std::vector<data::Source> files;
  for (const auto& source : sources)
    files.push_back({.path = source.path,
                     .weight = source.weight,
                     .type = source.file_type,
                     .rows = row_options(config, source, vocabulary),
                     .dataset = source.dataset,
                     .mixed_as = source.mixed_as,
                     .range = row_range(source)});
  return files;
}

data::Mixture mixture_of(const TrainConfig& config) {
  using enum data::MixStrategy;
  const std::map<MixStrategy, data::MixStrategy> strategies{
      {MixStrategy::concat, concat},
      {MixStrategy::interleave_under, interleave_under},
      {MixStrategy::interleave_over, interleave_over},
      {MixStrategy::interleave_once, interleave_once}};
  return {.strategy = strategies.at(config.mix_strategy), .probabilities = config.interleave_probs};
}

std::vector<std::size_t> mixed_datasets(const std::vector<DataSource>& sources) {
  std::vector<std::size_t> datasets;
  for (const auto& source : sources) datasets.push_back(source.mixed_as);
  return datasets;
}

std::string choices_of(const DataSource& source) {
  std::string all;
  const auto slice = source.split.find('[');
  if (slice != std::string::npos) all += source.split.substr(slice);
  if (source.max_samples > 0) all += fmt::format(" max {}", source.max_samples);
  const auto rows = row_options({}, source, 0);
  if (!rows.mapping.is_empty() || !source.format.empty() || !source.text_field.empty() ||
      source.assistant_only_loss)
    all += fmt::format(" {} {} {} {}", source.format, source.text_field, rows.assistant_only_loss,
                       rows.mapping.key());
  return all;
}

std::string token_cache(const TrainConfig& config) {
  if (!config.dataset_prepared_path.empty()) return config.dataset_prepared_path;
  const auto variable = [](const char* name) {
    const char* const value = getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const auto cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/mgpu-train";
  if (const auto home = variable("HOME"); !home.empty()) return home + "/.cache/mgpu-train";
  return (std::filesystem::path(config.output_dir) / ".tokens").string();
}

}  // namespace mgpu::train
