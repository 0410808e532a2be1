#pragma once

#include <string>
#include <vector>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// Whether a recipe has no tokenizer, so that one is trained from the text of its datasets: that of
// a model from scratch without tokenizer_path.
bool needs_new_tokenizer(const TrainConfig& config);

// The folder in output_dir of the tokenizer that a run trains. It appears when it is complete.
std::string new_tokenizer_folder(const TrainConfig& config);

// Trains the tokenizer of a run, unless an earlier start of the run has done so. One process calls
// it. Returns notes for the user. Throws if the data has no text, or if the tokenizer that is there
// was trained with other settings.
std::vector<std::string> make_tokenizer(const TrainConfig& config);

}  // namespace mgpu::train
