#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/kernels/attention.hpp"

// Keys and values of many sequences in pages, and attention over them for one new token each.
// A sequence's pages are listed in its row of a table, so that sequences can share the pages of
// what they have in common. Nothing here allocates or waits when `out` is given.
namespace mgpu::ops {

inline constexpr std::int64_t kPageTokens = 16;

// Keys and values of one layer: [pages, kPageTokens, kv_heads, head_dim].
struct Pages {
  Tensor keys, values;
};

// Puts the keys and values of qkv's rows ([tokens, (heads + 2 kv_heads) * head_dim]) where `slots`
// says: page * kPageTokens + place, int64 [tokens].
void put_in_pages(const Tensor& qkv, const HeadShape& shape, const Tensor& slots,
                  const Pages& pages);

// One query a sequence: row i of qkv attends to the first lengths[i] tokens of the pages in row i
// of `table` (int32 [sequences, most pages]); lengths int32, at least 1.
// out: [sequences, heads * head_dim].
void paged_attention(const Tensor& qkv, const HeadShape& shape, const Pages& pages,
                     const Tensor& table, const Tensor& lengths, const Tensor& out);

}  // namespace mgpu::ops
