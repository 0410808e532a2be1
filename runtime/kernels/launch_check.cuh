#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace mgpu::kernels {

// Call it after every kernel launch. A launch itself returns nothing: if it fails, the kernel does
// not run and its output keeps whatever is in memory. Also reports an error of earlier work that
// CUDA has noticed in the meantime. Throws std::runtime_error with the name of the kernel.
inline void check_launch(const char* kernel) {
  if (const auto error = cudaGetLastError(); error != cudaSuccess)
    throw std::runtime_error(std::string("the GPU kernel ") + kernel +
                             " could not be started: " + cudaGetErrorString(error));
}

}  // namespace mgpu::kernels
