#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"

namespace mgpu::recipes {

// The folder of a dataset of a hub; empty: it is not here yet.
using FolderOf = std::function<std::string(const train::DataSource&)>;

// Replaces folders, patterns and names of datasets by their files, each with one split. A dataset
// whose folder is not here stays as it is. Throws std::runtime_error for a file or a split that
// does not exist.
std::vector<train::DataSource> files_of(const std::vector<train::DataSource>& sources,
                                        const FolderOf& folder_of);

// Replaces names of LLaMA-Factory's dataset_info.json, which may be those of datasets of a hub.
// Throws std::runtime_error.
void apply_dataset_infos(train::TrainConfig& config);

}  // namespace mgpu::recipes
