#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "rendezvous/contract.hpp"
#include "runtime/config/config.hpp"
#include "runtime/hub/repository.hpp"

namespace mgpu::recipes {

// The repositories of hubs that a recipe names and that are not local paths. Rewards are included:
// a reward of the form owner/name is a model.
std::vector<hub::Repository> named_repositories(const train::TrainConfig& config);

// Whether a source of rows is the name of a dataset, and no path.
bool is_named_dataset(const train::DataSource& source);

// Whether the recipe's model is a name.
bool names_model(const train::TrainConfig& config);
// The folder in the cache with its configuration and tokenizer; empty: the model is no name, or
// they are not in the cache.
std::string settings_folder(const train::TrainConfig& config);

// Brings everything that the recipe names into the cache, before the ranks of a job do anything
// else: the first rank of each node downloads, and the others wait for those of all nodes. Then
// replaces names by the files of the cache where the trainer needs files. Throws train::RecipeError
// if the recipe or the machine must be changed, and std::runtime_error if it may pass.
void download_named(train::TrainConfig& config, const rendezvous::Contract& contract);

// Downloads what of these the dataset's tokens depend on: the datasets, and the configuration and
// the tokenizer of the model. Throws RecipeError.
void download_data(train::TrainConfig& config);

// The same for one model or adapter on a command line; returns what to open.
std::string downloaded_model(const std::string& name, hub::Part part);

// Brings the configurations and tokenizers of the models that the recipe names into the cache,
// within the time. Returns a line for each that cannot be had, and for each dataset that is not in
// the cache, without connecting for it. Replaces names as download_named() does, where it can.
std::vector<std::string> download_settings(train::TrainConfig& config,
                                           std::chrono::milliseconds limit);

// Uploads the model in output_dir as push_to_hub requests. Prints what it does, and a warning if
// that fails: the model stays where it is.
void push_to_hub(const train::TrainConfig& config);

}  // namespace mgpu::recipes
