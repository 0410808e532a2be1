#include "runtime/kernels/paged.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/kernels/rollout_on_gpu.hpp"

namespace mgpu::ops {
namespace {

// The cached keys and values that one query head attends to, in host memory.
template <class T>
struct Past {
  const T* keys;
  const T* values;
  const std::int32_t* pages;
  std::int64_t length, token_stride, head_dim;

  std::int64_t place(std::int64_t token) const {
    return (pages[token / kPageTokens] * kPageTokens + token % kPageTokens) * token_stride;
  }
};

// Eight partial sums, which compilers turn into vector instructions.
template <class T>
float dot_product(const T* a, const T* b, std::int64_t size) {
  float sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= size; i += 8)
    for (int j = 0; j < 8; ++j)
      sums[j] += static_cast<float>(a[i + j]) * static_cast<float>(b[i + j]);
  float sum = 0;
  for (; i < size; ++i) sum += static_cast<float>(a[i]) * static_cast<float>(b[i]);
  for (const float part : sums) sum += part;
  return sum;
}

template <class T>
void attend(const T* q, const Past<T>& past, float* weights, float* sum, T* out) {
  const auto dim = past.head_dim;
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  float largest = -INFINITY;
  for (std::int64_t t = 0; t < past.length; ++t) {
    weights[t] = dot_product(q, past.keys + past.place(t), dim) * scale;
    largest = std::max(largest, weights[t]);
  }
  std::fill(sum, sum + dim, 0.0F);
  float total = 0;
  for (std::int64_t t = 0; t < past.length; ++t) {
    const float w = std::exp(weights[t] - largest);
    total += w;
    const T* v = past.values + past.place(t);
    for (std::int64_t d = 0; d < dim; ++d) sum[d] += w * static_cast<float>(v[d]);
  }
  for (std::int64_t d = 0; d < dim; ++d) out[d] = static_cast<T>(sum[d] / total);
}

template <class T>
void on_host(const Tensor& qkv, const HeadShape& shape, const Pages& pages, const Tensor& table,
             const Tensor& lengths, const Tensor& out) {
  const auto dim = shape.head_dim;
  const auto* rows = qkv.const_data_ptr<T>();
  const auto* keys = pages.keys.const_data_ptr<T>();
  const auto* values = pages.values.const_data_ptr<T>();
  const auto* tables = table.const_data_ptr<std::int32_t>();
  const auto* length = lengths.const_data_ptr<std::int32_t>();
  auto* result = out.data_ptr<T>();
  at::parallel_for(0, qkv.size(0) * shape.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> weights, sum(static_cast<std::size_t>(dim));
    for (std::int64_t item = begin; item < end; ++item) {
      const auto i = item / shape.heads, head = item % shape.heads;
      const auto offset = head / (shape.heads / shape.kv_heads) * dim;
      weights.resize(static_cast<std::size_t>(length[i]));
      attend<T>(rows + i * qkv.stride(0) + head * dim,
                {keys + offset, values + offset, tables + i * table.stride(0), length[i],
                 shape.kv_heads * dim, dim},
                weights.data(), sum.data(), result + item * dim);
    }
  });
}

// For a GPU without our kernel: copies the pages of each sequence into one dense tensor first.
void composed(const Tensor& qkv, const HeadShape& shape, const Pages& pages, const Tensor& table,
              const Tensor& lengths, const Tensor& out) {
  const auto count = qkv.size(0);
  const auto room = table.size(1) * kPageTokens;
  const auto dense = [&](const Tensor& all) {
    return all.index_select(0, table.reshape({-1}))
        .view({count, room, shape.kv_heads, shape.head_dim})
        .transpose(1, 2);
  };
  const auto mask = at::lt(at::arange(room, lengths.options()).unsqueeze(0), lengths.unsqueeze(1));
  const auto q = qkv.view({count, -1, shape.head_dim}).narrow(1, 0, shape.heads).unsqueeze(2);
  out.copy_(at::scaled_dot_product_attention(q, dense(pages.keys), dense(pages.values),
                                             mask.view({count, 1, 1, room}), 0.0, false, {},
                                             /*enable_gqa=*/true)
                .reshape({count, shape.heads * shape.head_dim}));
}

}  // namespace

void put_in_pages(const Tensor& qkv, const HeadShape& shape, const Tensor& slots,
                  const Pages& pages) {
  if (on_gpu::can_put_in_pages(qkv, shape)) return on_gpu::put_in_pages(qkv, shape, slots, pages);
  const auto rows = qkv.view({qkv.size(0), -1, shape.head_dim});
  const auto flat = [&](const Tensor& all) {
    return all.view({-1, shape.kv_heads, shape.head_dim});
  };
  flat(pages.keys).index_copy_(0, slots, rows.narrow(1, shape.heads, shape.kv_heads));
  flat(pages.values)
      .index_copy_(0, slots, rows.narrow(1, shape.heads + shape.kv_heads, shape.kv_heads));
}

void paged_attention(const Tensor& qkv, const HeadShape& shape, const Pages& pages,
                     const Tensor& table, const Tensor& lengths, const Tensor& out) {
  if (!qkv.is_cuda()) {
    if (qkv.scalar_type() == at::kFloat)
      on_host<float>(qkv, shape, pages, table, lengths, out);
    else if (qkv.scalar_type() == at::kHalf)
      on_host<at::Half>(qkv, shape, pages, table, lengths, out);
    else
      on_host<at::BFloat16>(qkv, shape, pages, table, lengths, out);
    return;
  }
  if (on_gpu::can_paged_attention(qkv, shape))
    on_gpu::paged_attention(qkv, shape, pages, table, lengths, out);
  else
    composed(qkv, shape, pages, table, lengths, out);
}

}  // namespace mgpu::ops
