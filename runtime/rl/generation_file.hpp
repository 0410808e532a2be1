#pragma once

#include <string>
#include <vector>

#include "runtime/rl/generation.hpp"

namespace mgpu::rl {

// The completions of a generation in a checkpoint, a safetensors file; docs/checkpoints.md lists
// its tensors. It takes about 20 bytes per token.
void write_completions(const std::string& path, const std::vector<ScoredCompletion>& completions);

// Throws with the file and the tensor if one is missing or does not match the others.
std::vector<ScoredCompletion> read_completions(const std::string& path);

}  // namespace mgpu::rl
