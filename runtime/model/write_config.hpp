#pragma once

#include <string>
#include <string_view>

#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// Returns a config.json that transformers 4 and 5 load. `base` is the text of the file that the
// model came from, or empty; its other keys are kept, including its token ids. Vocabulary, tying,
// dtype and quantization come from `config`. Throws if `base` describes a different model in any
// other respect.
std::string model_config_text(const ModelConfig& config, std::string_view base = {});

// Returns a generation_config.json with the special tokens and no sampling settings.
std::string generation_config_text(const ModelConfig& config);

}  // namespace mgpu::model
