#include "runtime/config/planning/rollout_memory.hpp"

#include <algorithm>

namespace mgpu::train {
namespace {

std::int64_t pages_of_one(std::int64_t longest, const CachePage& page) {
  return (longest + page.tokens - 1) / page.tokens + 1;
}

}  // namespace

CachePage cache_page(const model::ModelConfig& model, std::int64_t bytes_per_number) {
  CachePage page;
  page.bytes = 2 * model.layers * page.tokens * model.kv_heads * model.head_dim * bytes_per_number;
  return page;
}

RolloutMemory rollout_memory(std::int64_t sequences, std::int64_t longest, const CachePage& page) {
  const auto pages = sequences * pages_of_one(longest, page) + 1;
  return {pages, pages * page.bytes};
}

std::int64_t sequences_that_fit(std::int64_t bytes, std::int64_t longest, const CachePage& page) {
  const auto pages = bytes / page.bytes - 1;
  return std::max<std::int64_t>(0, pages / pages_of_one(longest, page));
}

}  // namespace mgpu::train
