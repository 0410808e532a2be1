#pragma once

#include <string>
#include <vector>

#include "runtime/config/data_source.hpp"
#include "runtime/config/reading/reading.hpp"

namespace mgpu::train {

// Reads the value of dataset_name or eval_dataset; `folder` is dataset_dir. Adds errors to
// `reading`.
std::vector<DataSource> read_sources(Reading& reading, const Setting& setting,
                                     const std::string& folder);

// Reads the keys of the map `columns`, or of one dataset, that name columns, fields and roles.
// Returns false for a key that is none of them. Throws std::runtime_error for a wrong value.
bool read_column_names(const std::string& key, const YamlNode& value, DataSource& source);

}  // namespace mgpu::train
