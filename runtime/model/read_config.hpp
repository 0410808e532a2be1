#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// Reads a config.json in the dialect of transformers 4 or 5. Throws, naming the file and the key,
// where it asks for anything that this program does not compute.
ModelConfig parse_model_config(std::string_view text, const std::string& file);

// eos_token_id of a generation_config.json: a number, a list or nothing.
std::vector<std::int32_t> parse_generation_eos(std::string_view text, const std::string& file);

// `path`: a config.json, or the folder that has it. The ends of sequences are those of the
// generation_config.json beside it if there is one, as for transformers.
ModelConfig read_model_config(const std::string& path);

// Sizes that no tensor of a model we can hold exceeds; products of them fit into 64 bits.
inline constexpr std::int64_t kMostVocabulary = std::int64_t{1} << 28;
inline constexpr std::int64_t kMostWidth = std::int64_t{1} << 18;
inline constexpr std::int64_t kMostMlp = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostLayers = std::int64_t{1} << 12;
inline constexpr std::int64_t kMostHeads = std::int64_t{1} << 12;

}  // namespace mgpu::model
