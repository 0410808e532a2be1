#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// The number of GPUs that this process may use. Throws std::runtime_error if the driver is too old.
int visible_gpus();

// The number of a rank's GPU. Ranks share GPUs if there are more ranks than GPUs.
int gpu_of(int local_rank);

// Returns the GPU with this number and makes it the current device, or the CPU if `gpu` is false.
// Throws std::runtime_error for a GPU for which this build has no code.
at::Device take_device(int number, bool gpu);

// The type that weights compute in. `automatic` is bf16 on GPUs, fp16 on those before Ampere, which
// have no bf16, and fp32 on CPUs, where bf16 matrix products are usually 50 times slower. Throws
// std::runtime_error if bf16 is wanted on a GPU without it.
at::ScalarType compute_dtype(Dtype wanted, at::Device device);

std::string device_name(at::Device device);  // as the driver reports it; "cpu" for CPUs
void wait_for(at::Device device);            // returns when all queued work has run

// Whether an exception means that the memory of a GPU or of this process was not sufficient.
bool is_out_of_memory(const std::exception& error);
// Gives memory that no tensor uses back to the driver or the kernel, so that the next tensors do
// not need to fit into its pieces.
void release_unused_memory(at::Device device);

struct DeviceMemory {
  std::int64_t allocated = 0;       // bytes in tensors now
  std::int64_t peak_allocated = 0;  // the most bytes in tensors so far
  std::int64_t reserved = 0;        // bytes held by the allocator now
  std::int64_t peak_reserved = 0;   // the most bytes held by the allocator so far
  std::int64_t total = 0;           // memory of the GPU
  std::int64_t used = 0;            // used on the GPU by all processes
};
// The most bytes in tensors so far, without asking the driver, which takes longer. On a CPU: the
// most resident memory of this process.
std::int64_t peak_memory(at::Device device);
// On a CPU: the resident memory of this process, and the machine's memory as the total.
DeviceMemory device_memory(at::Device device);

}  // namespace mgpu::train
