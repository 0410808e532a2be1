#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// Parses a config.json in the format of transformers 4 or 5. Throws if it requests anything that
// this program does not compute; the message names the file and the key.
ModelConfig parse_model_config(std::string_view text, const std::string& file);

// Returns eos_token_id of a generation_config.json, which may hold a number, a list or nothing.
std::vector<std::int32_t> parse_generation_eos(std::string_view text, const std::string& file);

// Reads the config.json at `path`, which may also be the folder that contains it. As in
// transformers, eos_token_id comes from a generation_config.json beside it if that has one.
ModelConfig read_model_config(const std::string& path);

// Upper limits of the sizes in a config.json, beyond any model that fits in memory. Products of
// them fit into 64 bits.
inline constexpr std::int64_t kMostVocabulary = std::int64_t{1} << 28;
inline constexpr std::int64_t kMostWidth = std::int64_t{1} << 18;
inline constexpr std::int64_t kMostMlp = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostLayers = std::int64_t{1} << 12;
inline constexpr std::int64_t kMostHeads = std::int64_t{1} << 12;

}  // namespace mgpu::model
