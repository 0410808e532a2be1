#pragma once

#include <type_traits>

#include "runtime/kernels/vector.cuh"

namespace mgpu::kernels {

// The AdamW update of one element, as torch computes it: decay first.
class AdamWUpdate {
 public:
  __device__ AdamWUpdate(const AdamW& a, float clip, float count)
      : a_(a),
        clip_(clip),
        step_(a.lr / (1.0F - powf(a.beta1, count))),
        correction2_(sqrtf(1.0F - powf(a.beta2, count))) {}

  __device__ void operator()(float& w, float g, float& m, float& v) const {
    g *= clip_;
    w *= 1.0F - a_.lr * a_.decay;
    m = a_.beta1 * m + (1.0F - a_.beta1) * g;
    v = a_.beta2 * v + (1.0F - a_.beta2) * g * g;
    w -= step_ * m / (sqrtf(v) / correction2_ + a_.eps);
  }

 private:
  AdamW a_;
  float clip_, step_, correction2_;
};

__device__ inline std::uint32_t mixed(std::uint32_t x) {
  x = (x ^ x >> 16) * 0x45d9f3bU;
  x = (x ^ x >> 16) * 0x45d9f3bU;
  return x ^ x >> 16;
}

// The moments of an element as they are stored. In bf16 they are rounded up or down at random, as
// ops::round_at_random() does it; `w` and `g` are the weight before the step and the gradient
// before clipping.
template <class M>
__device__ inline void round_moments(float& m, float& v, float w, float g, float count) {
  if constexpr (std::is_same_v<M, bf16>) {
    const std::uint32_t step = static_cast<std::uint32_t>(count) * 0x9e3779b9U;
    const std::uint32_t bits = mixed(mixed(__float_as_uint(w) + step) ^ __float_as_uint(g));
    m = __uint_as_float((__float_as_uint(m) + (bits >> 16)) & 0xffff0000U);
    v = __uint_as_float((__float_as_uint(v) + (bits & 0xffffU)) & 0xffff0000U);
  }
}

}  // namespace mgpu::kernels
