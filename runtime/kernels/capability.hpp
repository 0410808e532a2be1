#pragma once

#include <c10/core/Device.h>

namespace mgpu::ops {

// The compute capability of a GPU, times ten: 75 is 7.5.
int capability_of(at::Device gpu);

// The first generation with bf16, with flash attention and cuDNN's, and for which our kernel of
// paged attention in 16 bits is written: Ampere. For GPUs before it ATen has other kernels.
inline constexpr int kAmpere = 80;
inline bool is_ampere_or_newer(at::Device gpu) {
  return capability_of(gpu) >= kAmpere;
}

// What our kernels were compiled for, as CMake names architectures, separated by blanks: "80-real
// 90". Empty: the build has no kernels, and every GPU uses those of ATen.
const char* compiled_architectures();

}  // namespace mgpu::ops
