#pragma once

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

}  // namespace mgpu::kernels
