#include "runtime/kernels/rollout_on_gpu.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#ifdef MGPU_CUDA
#include "runtime/kernels/capability.hpp"
#include "runtime/kernels/gpu_tensors.hpp"
#endif

namespace mgpu::ops::on_gpu {

#ifdef MGPU_CUDA

namespace {

// Blocks of the paged attention kernels. From compute capability 9.0 on, in 16 bits, each has
// enough loads on their way, and more are only useful where sequences may differ by many pages.
constexpr std::int64_t kBlocksWanted = 1024, kBlocksNeeded = 192, kPagesOfBlock = 64;
constexpr int kHopper = 90;

std::int64_t splits_of(const Tensor& qkv, const Tensor& table, std::int64_t kv_heads) {
  const auto blocks = std::max<std::int64_t>(qkv.size(0) * kv_heads, 1);
  auto splits = kBlocksWanted / blocks;
  if (qkv.scalar_type() != at::kFloat && capability_of(qkv.device()) >= kHopper)
    splits = std::min(splits, std::max(kBlocksNeeded / blocks, table.size(1) / kPagesOfBlock));
  // None with fewer than a few pages.
  return std::clamp<std::int64_t>(splits, 1, std::max<std::int64_t>(table.size(1) / 8, 1));
}

}  // namespace

bool can_paged_attention(const Tensor& qkv, const HeadShape& shape) {
  return qkv.is_cuda() && known_type(qkv) &&
         (qkv.scalar_type() == at::kFloat || is_ampere_or_newer(qkv.device())) &&
         qkv.stride(-1) == 1 && kernels::vectorizable(qkv.const_data_ptr(), qkv.stride(0)) &&
         kernels::paged_attention_supports(static_cast<int>(shape.heads / shape.kv_heads),
                                           static_cast<int>(shape.head_dim));
}

void paged_attention(const Tensor& qkv, const HeadShape& shape, const Pages& pages,
                     const Tensor& table, const Tensor& lengths, const Tensor& out) {
  const auto sequences = qkv.size(0);
  const auto splits = splits_of(qkv, table, shape.kv_heads);
  const auto parts = splits > 1 ? sequences * shape.heads * splits : 0;
  const Tensor values = floats(qkv, parts * shape.head_dim), largest = floats(qkv, parts),
               totals = floats(qkv, parts);
  kernels::paged_attention(type_of(qkv),
                           {.q = qkv.const_data_ptr(),
                            .keys = pages.keys.const_data_ptr(),
                            .values = pages.values.const_data_ptr(),
                            .table = table.const_data_ptr<std::int32_t>(),
                            .lengths = lengths.const_data_ptr<std::int32_t>(),
                            .out = out.data_ptr(),
                            .q_stride = qkv.stride(0),
                            .table_stride = table.stride(0),
                            .kv_heads = static_cast<int>(shape.kv_heads),
                            .splits = static_cast<int>(splits),
                            .scale = 1 / std::sqrt(static_cast<float>(shape.head_dim)),
                            .part_values = values.data_ptr<float>(),
                            .part_largest = largest.data_ptr<float>(),
                            .part_totals = totals.data_ptr<float>(),
                            .tokens = pages.keys.size(0) * kPageTokens},
                           static_cast<int>(shape.heads / shape.kv_heads),
                           static_cast<int>(shape.head_dim), sequences, stream_of(qkv));
}

bool can_put_in_pages(const Tensor& qkv, const HeadShape& shape) {
  return qkv.is_cuda() && known_type(qkv) && qkv.stride(-1) == 1 &&
         kernels::vectorizable(qkv.const_data_ptr(), qkv.stride(0)) && shape.head_dim % 8 == 0;
}

void put_in_pages(const Tensor& qkv, const HeadShape& shape, const Tensor& slots,
                  const Pages& pages) {
  const auto units = [&](std::int64_t elements) {
    return elements * static_cast<std::int64_t>(qkv.element_size()) / 16;
  };
  kernels::put_in_pages({.keys_from = static_cast<const uint4*>(qkv.const_data_ptr()) +
                                      units(shape.heads * shape.head_dim),
                         .stride = units(qkv.stride(0)),
                         .width = static_cast<int>(units(shape.kv_heads * shape.head_dim)),
                         .slots = slots.const_data_ptr<std::int64_t>(),
                         .keys = static_cast<uint4*>(pages.keys.data_ptr()),
                         .values = static_cast<uint4*>(pages.values.data_ptr())},
                        qkv.size(0), stream_of(qkv));
}

bool can_sample(const Tensor& logits) {
  return logits.is_cuda() && known_type(logits) && logits.stride(-1) == 1;
}

void sample(const Tensor& logits, const Sampling& sampling, const Draw& draw) {
  kernels::sample(type_of(logits),
                  {.logits = logits.const_data_ptr(),
                   .stride = logits.stride(0),
                   .temperature = static_cast<float>(sampling.temperature),
                   .top_k = static_cast<int>(sampling.top_k),
                   .top_p = static_cast<float>(sampling.top_p),
                   .min_p = static_cast<float>(sampling.min_p),
                   .seeds = draw.seeds.const_data_ptr<std::int64_t>(),
                   .counters = draw.counters.const_data_ptr<std::int32_t>(),
                   .tokens = draw.tokens.data_ptr<std::int32_t>(),
                   .log_probs = draw.log_probs.data_ptr<float>()},
                  logits.size(0), static_cast<int>(logits.size(1)), stream_of(logits));
}

#else

namespace {
[[noreturn]] void no_rollout_kernels() {
  throw std::logic_error("this build has no CUDA kernels");
}
}  // namespace

bool can_paged_attention(const Tensor&, const HeadShape&) {
  return false;
}
void paged_attention(const Tensor&, const HeadShape&, const Pages&, const Tensor&, const Tensor&,
                     const Tensor&) {
  no_rollout_kernels();
}
bool can_put_in_pages(const Tensor&, const HeadShape&) {
  return false;
}
void put_in_pages(const Tensor&, const HeadShape&, const Tensor&, const Pages&) {
  no_rollout_kernels();
}
bool can_sample(const Tensor&) {
  return false;
}
void sample(const Tensor&, const Sampling&, const Draw&) {
  no_rollout_kernels();
}

#endif

}  // namespace mgpu::ops::on_gpu
