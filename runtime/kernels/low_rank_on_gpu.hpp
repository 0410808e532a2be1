#pragma once

#include "runtime/kernels/low_rank.hpp"

// The operations of low_rank.hpp that our CUDA kernels implement; see on_gpu.hpp.
namespace mgpu::ops::on_gpu {

bool can_low_rank_product(const Tensor& x, const Tensor& a);

// x a^T, computed on a second stream beside what is queued on the current one before take().
class LowRankProduct {
 public:
  LowRankProduct(const Tensor& x, const Tensor& a);
  LowRankProduct(const LowRankProduct&) = delete;
  LowRankProduct& operator=(const LowRankProduct&) = delete;
  ~LowRankProduct();
  // The current stream waits for the product.
  Tensor take();

 private:
  Tensor low_;
};

bool can_add_low_rank(const Tensor& x, const LowRank& added, std::int64_t width);
bool can_add(const Tensor& y, const LowRank& added);
void add_low_rank_(const Tensor& y, const LowRank& added);

bool can_swiglu(const Tensor& gate_up, const LowRank& added);
Tensor swiglu(const Tensor& gate_up, const LowRank& added);

bool can_norm(const Tensor& x, const LowRank& added, const Tensor& residual, const Tensor& w);
std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const LowRank& added,
                                        const Tensor& residual, const Tensor& w, double eps);

bool can_rotate_into_pages(const Tensor& qkv, const LowRank& added, const HeadShape& shape,
                           const Pages& pages);
void rotate_into_pages(const Tensor& qkv, const LowRank& added, const HeadShape& shape,
                       const Rotation& rotation, const Tensor& slots, const Pages& pages);

}  // namespace mgpu::ops::on_gpu
