#include "runtime/kernels/capability.hpp"

#include <ATen/cuda/CUDAContextLight.h>

namespace mgpu::ops {

int capability_of(at::Device gpu) {
  const auto* const properties = at::cuda::getDeviceProperties(gpu.index());
  return 10 * properties->major + properties->minor;
}

const char* compiled_architectures() {
  return MGPU_ARCHITECTURES;
}

}  // namespace mgpu::ops
