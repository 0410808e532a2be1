#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/kernels/attention.hpp"

// The paged KV cache of many sequences, and attention over it for one new token per sequence. A
// table has one row per sequence that lists its pages, so that sequences can share the pages of a
// common prefix. None of these functions waits for the device.
namespace mgpu::ops {

inline constexpr std::int64_t kPageTokens = 16;

// The KV cache pages of one layer: [pages, kPageTokens, kv_heads, head_dim].
struct Pages {
  Tensor keys, values;
};

// Copies the keys and values of qkv's rows ([tokens, (heads + 2 kv_heads) * head_dim]) to `slots`,
// int64 [tokens]: slot = page * kPageTokens + position in the page.
void put_in_pages(const Tensor& qkv, const HeadShape& shape, const Tensor& slots,
                  const Pages& pages);

// One query per sequence: row i of qkv attends to the first lengths[i] tokens of the pages in row i
// of `table` (int32 [sequences, most pages]). `lengths` is int32, at least 1. Writes to `out`,
// [sequences, heads * head_dim]. On a GPU what writes the table, the lengths or pages, except the
// newest token of each sequence, must not be queued just before: see paged_attention_of_tiles().
void paged_attention(const Tensor& qkv, const HeadShape& shape, const Pages& pages,
                     const Tensor& table, const Tensor& lengths, const Tensor& out);

}  // namespace mgpu::ops
