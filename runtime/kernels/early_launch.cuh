#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

// Launches on GPUs from compute capability 9.0 on: a kernel may begin before the one before it has
// ended, as soon as all blocks of that one have begun and allowed it. So the time between two
// kernels is hidden, and a kernel can already read what is old.
//
// Every kernel that is launched early calls wait_for_earlier_kernels() before it touches memory
// that kernels before it write, and before it writes memory that they may read. What it reads after
// that is not __restrict__: that would promise that nobody writes it while the kernel runs. Small
// kernels and attention let the next one begin at once, so that it reads its weights while the
// product before them still runs. Products do so only after they have waited: so when a kernel
// begins, all that were launched before the last product (or the last kernel that was not launched
// early) have ended.
namespace mgpu::kernels {

__device__ inline void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// For small kernels.
__device__ inline void begin_after_earlier_kernels() {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
}

// All threads of all blocks of the cluster.
__device__ inline void cluster_sync() {
#if __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// The address of the same place in the shared memory of another block of the cluster.
__device__ inline unsigned address_in_block(unsigned address, unsigned block) {
  unsigned there = address;
#if __CUDA_ARCH__ >= 900
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
#endif
  return there;
}
__device__ inline float4 load_floats(unsigned address) {
  float4 v{};
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
#endif
  return v;
}

// Whether the current GPU has all this, and runs code that has it. The list does not tell machine
// code from code that newer GPUs can translate, so code for an earlier generation does not count:
// those GPUs may have to translate code for 8.0, which does not wait. Units may be compiled for
// different GPUs, so each has functions of its own.
static inline bool launches_early() {
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  for (const int compiled_for : {__CUDA_ARCH_LIST__})
    if (compiled_for >= 900 && compiled_for / 100 == major &&
        compiled_for <= 100 * major + 10 * minor)
      return true;
  return false;
}

struct LaunchShape {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
  int cluster = 1;  // blocks, along x
  bool early = true;
};

// Launches a kernel early if the GPU can.
template <class... Parameters, class... Arguments>
static void launch_early(void (*kernel)(Parameters...), const LaunchShape& shape,
                         cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (shape.early && launches_early()) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  // An error is reported by check_launch().
  (void)cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace mgpu::kernels
