#include "runtime/kernels/attention_layout.hpp"

#include <ATen/ops/index_select.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "runtime/kernels/capability.hpp"

namespace mgpu::ops {

Heads split(const Tensor& qkv, const HeadShape& s) {
  const auto rows = qkv.view({qkv.size(0), s.heads + 2 * s.kv_heads, s.head_dim});
  return {rows.narrow(1, 0, s.heads), rows.narrow(1, s.heads, s.kv_heads),
          rows.narrow(1, s.heads + s.kv_heads, s.kv_heads)};
}

std::span<const std::int32_t> host_starts_of(const Sequences& s) {
  return {s.host_starts.const_data_ptr<std::int32_t>(), static_cast<std::size_t>(s.count + 1)};
}

Tensor to_dense(const Tensor& x, const Sequences& s) {
  if (s.equal) return x.view({s.count, s.longest, x.size(1), x.size(2)}).transpose(1, 2);
  Tensor padded = at::zeros({s.count * s.longest, x.size(1), x.size(2)}, x.options());
  padded.index_copy_(0, s.places, x);
  return padded.view({s.count, s.longest, x.size(1), x.size(2)}).transpose(1, 2);
}

Tensor from_dense(const Tensor& x, const Sequences& s) {
  const auto rows = x.transpose(1, 2).reshape({s.count * s.longest, x.size(1), x.size(3)});
  return s.equal ? rows : rows.index_select(0, s.places);
}

Tensor repeat_heads(const Tensor& x, std::int64_t times) {
  return times == 1 ? x : x.repeat_interleave(times, 1);
}

Tensor fold_heads(const Tensor& g, std::int64_t times) {
  if (times == 1) return g;
  return g.reshape({g.size(0), g.size(1) / times, times, g.size(2), g.size(3)}).sum({2});
}

bool can_flash(const Tensor& qkv) {
  return qkv.scalar_type() != at::kFloat && is_ampere_or_newer(qkv.device());
}

}  // namespace mgpu::ops
