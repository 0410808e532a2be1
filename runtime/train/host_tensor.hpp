#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mgpu::train {

// A vector of zeros in host memory that is kept. `pinned`: a GPU can read it. Throws
// std::runtime_error if the system refuses the memory.
at::Tensor host_tensor(std::int64_t elements, at::ScalarType type, bool pinned);

}  // namespace mgpu::train
