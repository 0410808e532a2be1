#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/data/mixture.hpp"
#include "runtime/data/prepare.hpp"

namespace mgpu::train {

// How the rows of a source are read: as its keys say, or else those of the recipe. vocabulary 0:
// unknown.
data::RowOptions row_options(const TrainConfig& config, const DataSource& source,
                             std::int64_t vocabulary);

// The files of dataset_name or eval_dataset for data::prepare. Throws std::runtime_error if a split
// cannot be parsed.
std::vector<data::Source> row_sources(const TrainConfig& config,
                                      const std::vector<DataSource>& sources,
                                      std::int64_t vocabulary);

// How the datasets of a recipe are combined, and the number of the dataset that each source of
// dataset_name belongs to.
data::Mixture mixture_of(const TrainConfig& config);
std::vector<std::size_t> mixed_datasets(const std::vector<DataSource>& sources);

// The rows of a source that are used.
data::RowRange row_range(const DataSource& source);

// What of a source, other than its contents and weight, decides which rows are trained on and how
// they are read; empty: all rows as the recipe's keys say.
std::string choices_of(const DataSource& source);

// The folder of the token cache.
std::string token_cache(const TrainConfig& config);

}  // namespace mgpu::train
