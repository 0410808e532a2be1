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

RolloutSize rollout_size(const RolloutRequest& request, std::int64_t bytes) {
  constexpr std::int64_t kGrowing = 8;     // sequences for each that fits at its maximum length
  constexpr std::int64_t kLogitsPart = 8;  // logits take at most one part of so many
  const auto whole = [&](std::int64_t sequences) {
    const auto cache = rollout_memory(sequences, request.longest, request.page);
    return RolloutSize{sequences, cache.pages, cache.bytes + sequences * request.logits};
  };
  const auto most = std::max<std::int64_t>(1, std::min(kMostSequences, request.completions));
  if (bytes == 0 || whole(most).bytes <= bytes) return whole(most);
  const auto one = whole(1);
  if (one.bytes > bytes) return one;
  const auto fit = (bytes - request.page.bytes) / (one.bytes - request.page.bytes);
  const auto growing = std::min({request.completions, kMostGrowing, fit * kGrowing,
                                 bytes / kLogitsPart / std::max<std::int64_t>(1, request.logits)});
  auto size = whole(std::max(fit, growing));
  if (size.bytes > bytes) {
    size.pages = (bytes - size.sequences * request.logits) / request.page.bytes;
    size.bytes = size.pages * request.page.bytes + size.sequences * request.logits;
  }
  return size;
}

}  // namespace mgpu::train
