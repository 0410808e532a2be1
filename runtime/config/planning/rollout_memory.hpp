#pragma once

#include <cstdint>

#include "runtime/model/model_config.hpp"

namespace mgpu::train {

// Maximum number of completions that an engine generates concurrently if it has pages for all of
// them at their maximum length, and if completions get pages as they grow.
inline constexpr std::int64_t kMostSequences = 256, kMostGrowing = 1024;
// Tokens that it may generate beyond the end of a completion before it checks for the end.
inline constexpr std::int64_t kMostBurst = 8;

// A page of the KV cache: `tokens` tokens of one sequence, in all layers.
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

// The KV cache for sequences that all reach `longest` tokens (prompt, completion and burst). Each
// sequence has one more page, for the partly filled page that it shares, and one page is unused.
RolloutMemory rollout_memory(std::int64_t sequences, std::int64_t longest, const CachePage& page);

// How many such sequences fit into `bytes`; 0 if none does.
std::int64_t sequences_that_fit(std::int64_t bytes, std::int64_t longest, const CachePage& page);

// What an engine may use.
struct RolloutSize {
  std::int64_t sequences = 0;  // generated concurrently, at most
  std::int64_t pages = 0;      // including the unused one
  std::int64_t bytes = 0;      // of the pages and the logits

  friend bool operator==(const RolloutSize&, const RolloutSize&) = default;
};

struct RolloutRequest {
  std::int64_t completions = 0;  // to generate
  std::int64_t longest = 0;      // tokens, as above
  std::int64_t logits = 0;       // bytes for each concurrent sequence
  CachePage page;
};

// The size for a request. If `bytes` suffice (or are 0: unknown), up to kMostSequences have pages
// for their maximum length. Otherwise all of `bytes` are pages, for more sequences than fit at
// their maximum length, because most completions are shorter; at least one fits in any case.
RolloutSize rollout_size(const RolloutRequest& request, std::int64_t bytes);

}  // namespace mgpu::train
