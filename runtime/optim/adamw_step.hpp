#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/kernels/moment.hpp"
#include "runtime/kernels/on_gpu.hpp"

namespace mgpu::optim {

using at::Tensor;
using ops::Moment;
using AdamWStep = ops::on_gpu::AdamWStep;

// Flat vectors of the same length that are updated together. Both moments have the same format.
struct Span {
  Tensor master, value, grad;  // undefined value: the model computes with the master
  Moment first, second;
  bool decay = false;
  double rate = 1;  // factor of the learning rate
};

// Takes one step with the gradients multiplied by `clip`. Changes nothing if `skip` is 1. `count`
// is the number of steps taken, including this one. All three are scalars on the device; the
// function does not wait for it.
void adamw_step(const AdamWStep& step, const Span& span, const Tensor& clip, const Tensor& skip,
                const Tensor& count);

}  // namespace mgpu::optim
