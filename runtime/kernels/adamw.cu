#include "runtime/kernels/adamw.cuh"
#include "runtime/kernels/launch_check.cuh"

namespace mgpu::kernels {
namespace {

constexpr int kThreads = 256;

template <class V, class G, class M>
__global__ void adamw_kernel(AdamW a, float* __restrict__ master, V* __restrict__ value,
                             const G* __restrict__ grad, M* __restrict__ first,
                             M* __restrict__ second, const float* __restrict__ clip,
                             const float* __restrict__ skip, const float* __restrict__ count,
                             std::int64_t n) {
  if (*skip != 0.0F) return;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 8;
  if (i >= n) return;
  const AdamWUpdate update(a, *clip, *count);
  if (i + 8 <= n) {
    Eight w = load8(master + i);
    const Eight g = load8(grad + i);
    Eight m = load8(first + i);
    Eight v = load8(second + i);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float before = w.v[k];
      update(w.v[k], g.v[k], m.v[k], v.v[k]);
      round_moments<M>(m.v[k], v.v[k], before, g.v[k], *count);
    }
    store8(master + i, w);
    store8(first + i, m);
    store8(second + i, v);
    if (value != nullptr) store8(value + i, w);
    return;
  }
  for (std::int64_t j = i; j < n; ++j) {
    float m = to_float(first[j]);
    float v = to_float(second[j]);
    const float g = to_float(grad[j]);
    const float before = master[j];
    update(master[j], g, m, v);
    round_moments<M>(m, v, before, g, *count);
    first[j] = from_float<M>(m);
    second[j] = from_float<M>(v);
    if (value != nullptr) value[j] = from_float<V>(master[j]);
  }
}

}  // namespace

void adamw(const AdamW& a, float* master, Type value_type, void* value, Type grad_type,
           const void* grad, Type moment_type, void* first, void* second, const float* clip,
           const float* skip, const float* count, std::int64_t n, cudaStream_t stream) {
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>((n + kThreads * 8 - 1) / (kThreads * 8));
  with_bf16_or_f16(value_type, [&](auto* value_tag) {
    with_f32_or_bf16(grad_type, [&](auto* grad_tag) {
      with_f32_or_bf16(moment_type, [&](auto* moment_tag) {
        using V = std::remove_pointer_t<decltype(value_tag)>;
        using G = std::remove_pointer_t<decltype(grad_tag)>;
        using M = std::remove_pointer_t<decltype(moment_tag)>;
        adamw_kernel<V, G, M><<<blocks, kThreads, 0, stream>>>(
            a, master, static_cast<V*>(value), static_cast<const G*>(grad), static_cast<M*>(first),
            static_cast<M*>(second), clip, skip, count, n);
        check_launch("adamw");
      });
    });
  });
}

}  // namespace mgpu::kernels
