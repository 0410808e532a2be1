#include "runtime/kernels/head_norms.hpp"

#include <ATen/ops/cat.h>

#include "runtime/kernels/on_gpu.hpp"
#include "runtime/kernels/ops.hpp"

namespace mgpu::ops {
namespace {

std::int64_t qk_heads(const HeadShape& shape) {
  return shape.heads + shape.kv_heads;
}

// The heads [from, from + count) of every token, one head per row.
Tensor heads_of(const Tensor& qkv, std::int64_t from, std::int64_t count, std::int64_t head_dim) {
  return qkv.narrow(1, from * head_dim, count * head_dim).reshape({-1, head_dim});
}

}  // namespace

void norm_heads_(Tensor& qkv, const HeadNorms& norms, const Rotation& rotation,
                 HeadNormsSaved* saved) {
  if (on_gpu::can_norm_heads(qkv, norms)) {
    on_gpu::norm_heads_(qkv, norms, rotation, saved);
    return;
  }
  const auto& [heads, kv_heads, head_dim] = norms.shape;
  if (saved != nullptr) saved->before = heads_of(qkv, 0, heads + kv_heads, head_dim).clone();
  const auto norm = [&](std::int64_t from, std::int64_t count, const Tensor& w) {
    auto [y, rstd] = rms_norm(heads_of(qkv, from, count, w.size(0)), w, norms.eps);
    qkv.narrow(1, from * w.size(0), count * w.size(0)).copy_(y.view({qkv.size(0), -1}));
    return rstd.view({qkv.size(0), count});
  };
  const auto q_rstd = norm(0, heads, norms.q);
  const auto k_rstd = norm(heads, kv_heads, norms.k);
  if (saved != nullptr) saved->rstd = at::cat({q_rstd, k_rstd}, 1);
  rotate_(qkv, qk_heads(norms.shape), head_dim, rotation.cos, rotation.sin, rotation.positions,
          false);
}

void norm_heads_backward_(Tensor& g_qkv, const HeadNorms& norms, const Rotation& rotation,
                          const HeadNormsSaved& saved, const Tensor& gq, const Tensor& gk) {
  if (on_gpu::can_norm_heads(g_qkv, norms)) {
    on_gpu::norm_heads_backward_(g_qkv, norms, rotation, saved, gq, gk);
    return;
  }
  const auto& [heads, kv_heads, head_dim] = norms.shape;
  rotate_(g_qkv, qk_heads(norms.shape), head_dim, rotation.cos, rotation.sin, rotation.positions,
          true);
  const Tensor before = saved.before.view({g_qkv.size(0), -1});
  const auto norm = [&](std::int64_t from, std::int64_t count, const Tensor& w, const Tensor& gw) {
    const auto g = heads_of(g_qkv, from, count, w.size(0));
    const auto x = heads_of(before, from, count, w.size(0));
    const auto rstd = saved.rstd.narrow(1, from, count).reshape({-1});
    const auto gx = rms_norm_backward(g, x, w, rstd, {}, gw);
    g_qkv.narrow(1, from * w.size(0), count * w.size(0)).copy_(gx.view({g_qkv.size(0), -1}));
  };
  norm(0, heads, norms.q, gq);
  norm(heads, kv_heads, norms.k, gk);
}

}  // namespace mgpu::ops
