#include "runtime/kernels/low_rank.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "runtime/kernels/few_rows_on_gpu.hpp"
#include "runtime/kernels/low_rank_on_gpu.hpp"
#include "runtime/kernels/ops.hpp"

namespace mgpu::ops {

bool can_add_low_rank(const Tensor& x, const LowRank& added, std::int64_t width) {
  return on_gpu::can_add_low_rank(x, added, width);
}

std::pair<Tensor, Tensor> product_and_low(const Tensor& x, const Tensor& w, const Tensor& bias,
                                          const Tensor& a, bool w_is_new) {
  const on_gpu::FewRows ours{.x = x, .w = w, .bias = bias, .a = a, .early = !w_is_new};
  if (on_gpu::can_few_rows(ours)) return on_gpu::few_rows(ours);
  if (!a.defined()) return {product(x, w.t(), bias), {}};
  if (!on_gpu::can_low_rank_product(x, a)) return {product(x, w.t(), bias), at::mm(x, a.t())};
  on_gpu::LowRankProduct beside(x, a);
  Tensor y = product(x, w.t(), bias);
  return {y, beside.take()};
}

void add_low_rank_(const Tensor& y, const LowRank& added) {
  if (!added.low.defined()) return;
  if (on_gpu::can_add(y, added)) return on_gpu::add_low_rank_(y, added);
  for (const auto& term : added.terms) {
    Tensor part = y.narrow(1, term.begin, term.b.size(0));
    const Tensor low = added.low.narrow(1, term.column, term.b.size(1));
    at::addmm_out(part, part, low, term.b.t(), 1, added.scale);
  }
}

Tensor swiglu(const Tensor& gate_up, const LowRank& added) {
  if (added.low.defined() && on_gpu::can_swiglu(gate_up, added))
    return on_gpu::swiglu(gate_up, added);
  add_low_rank_(gate_up, added);
  return swiglu(gate_up);
}

Tensor swiglu_of_product(const Tensor& x, const Tensor& w, const Tensor& bias) {
  const on_gpu::FewRows ours{.x = x, .w = w, .bias = bias, .a = {}, .gated = true};
  if (on_gpu::can_few_rows(ours)) return on_gpu::few_rows(ours).first;
  return swiglu(product(x, w.t(), bias));
}

std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const LowRank& added,
                                        const Tensor& residual, const Tensor& w, double eps) {
  if (on_gpu::can_norm(x, added, residual, w))
    return on_gpu::add_rms_norm(x, added, residual, w, eps);
  add_low_rank_(x, added);
  auto [sum, y, rstd] = add_rms_norm(x, residual, w, eps);
  return {sum, y};
}

void rotate_into_pages(Tensor& qkv, const LowRank& added, const HeadShape& shape,
                       const Rotation& rotation, const Tensor& slots, const Pages& pages) {
  if (on_gpu::can_rotate_into_pages(qkv, added, shape, pages))
    return on_gpu::rotate_into_pages(qkv, added, shape, rotation, slots, pages);
  add_low_rank_(qkv, added);
  rotate_(qkv, shape.heads + shape.kv_heads, shape.head_dim, rotation.cos, rotation.sin,
          rotation.positions, false);
  put_in_pages(qkv, shape, slots, pages);
}

}  // namespace mgpu::ops
