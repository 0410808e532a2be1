#pragma once

#include <string>

#include "runtime/data/encoder.hpp"
#include "runtime/rollout/allowed_sequences.hpp"

namespace mgpu::recipes {

// Reads a file with one completion per line: a JSON string, which is encoded without special
// tokens, or a list of token ids. Blank lines are skipped. Throws std::runtime_error with the
// file's name.
rollout::AllowedSequences read_allowed(const std::string& path, const data::Encoder& encoder,
                                       std::int32_t end_token);

}  // namespace mgpu::recipes
