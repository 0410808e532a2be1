#pragma once

#include <string>
#include <vector>

#include "runtime/config/data_source.hpp"

namespace mgpu::recipes {

// Replaces a name of LLaMA-Factory by what the dataset_info.json in source.info_folder says of it.
// Nothing changes without such a file. Throws std::runtime_error if the file has no such name, or
// if the entry needs something that is not supported.
void apply_dataset_info(train::DataSource& source);

}  // namespace mgpu::recipes
