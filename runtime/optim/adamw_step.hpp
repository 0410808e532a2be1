#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/kernels/moment.hpp"
#include "runtime/kernels/on_gpu.hpp"

namespace mgpu::optim {

using at::Tensor;
using ops::Moment;
using AdamWStep = ops::on_gpu::AdamWStep;

// Flat vectors of one length that take a step together; both moments are held alike.
struct Span {
  Tensor master, value, grad;  // value undefined: the master computes
  Moment first, second;
  bool decay = false;
};

// One step with the gradients times `clip`. Nothing changes if `skip` is 1; `count` is of the steps
// taken, this one included. All three are scalars on the device, which nothing here waits for.
void adamw_step(const AdamWStep& step, const Span& span, const Tensor& clip, const Tensor& skip,
                const Tensor& count);

}  // namespace mgpu::optim
