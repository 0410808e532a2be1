#pragma once

#include "runtime/kernels/paged.hpp"
#include "runtime/kernels/sampling.hpp"

// The operations of paged.hpp and sampling.hpp that our CUDA kernels implement; see on_gpu.hpp.
namespace mgpu::ops::on_gpu {

bool can_paged_attention(const Tensor& qkv, const HeadShape& shape);
void paged_attention(const Tensor& qkv, const HeadShape& shape, const Pages& pages,
                     const Tensor& table, const Tensor& lengths, const Tensor& out);
bool can_put_in_pages(const Tensor& qkv, const HeadShape& shape);
void put_in_pages(const Tensor& qkv, const HeadShape& shape, const Tensor& slots,
                  const Pages& pages);
bool can_sample(const Tensor& logits);
void sample(const Tensor& logits, const Sampling& sampling, const Draw& draw);

}  // namespace mgpu::ops::on_gpu
