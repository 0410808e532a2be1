#pragma once

#include <cstdint>

#include "runtime/model/model_config.hpp"

namespace mgpu::train {

// Completions that an engine continues together, at most.
inline constexpr std::int64_t kMostSequences = 256;
// Tokens that it may make beyond the end of a completion before it looks.
inline constexpr std::int64_t kMostBurst = 8;

// A page of the cache of keys and values: so many tokens of one sequence, in all layers.
struct CachePage {
  std::int64_t tokens = 16;
  std::int64_t bytes = 0;
};
CachePage cache_page(const model::ModelConfig& model, std::int64_t bytes_per_number);

struct RolloutMemory {
  std::int64_t pages = 0;
  std::int64_t bytes = 0;

  friend bool operator==(const RolloutMemory&, const RolloutMemory&) = default;
};

// The cache for sequences that all become `longest` tokens long (prompt, completion and burst),
// with a page for each whose beginning it shares, and one that is nobody's.
RolloutMemory rollout_memory(std::int64_t sequences, std::int64_t longest, const CachePage& page);

// How many such sequences fit into so many bytes; 0: none does.
std::int64_t sequences_that_fit(std::int64_t bytes, std::int64_t longest, const CachePage& page);

}  // namespace mgpu::train
