#pragma once

#include <string>
#include <string_view>

#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// The text of a config.json that transformers 4 and 5 load. `base`: the text of the file that the
// model came from, or nothing; whatever it says beside what we know is kept, the ids of its
// tokens too. Throws if base describes another model than `config` but for vocabulary, tying,
// dtype and quantization, which config decides.
std::string model_config_text(const ModelConfig& config, std::string_view base = {});

// The text of a generation_config.json: the special tokens, nothing about sampling.
std::string generation_config_text(const ModelConfig& config);

}  // namespace mgpu::model
