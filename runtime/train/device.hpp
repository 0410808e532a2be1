#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/config/config.hpp"

namespace mgpu::train {

// How many GPUs this process may use.
int visible_gpus();

// The device of the rank with this local number; makes it the current one. CPU if there is no GPU.
at::Device take_device(int local_rank, bool gpu);

// auto is bf16 on GPUs and fp32 on CPUs, where bf16 products are 50 times slower as a rule. fp16 is
// refused: it needs loss scaling, which the gradients in fp32 make needless with bf16.
at::ScalarType compute_dtype(Dtype wanted, at::Device device);

std::string device_name(at::Device device);  // as the driver says it; "cpu"
void wait_for(at::Device device);            // until everything queued has run

struct DeviceMemory {
  std::int64_t allocated = 0;       // by tensors now
  std::int64_t peak_allocated = 0;  // by tensors, at most so far
  std::int64_t reserved = 0;        // by the allocator now
  std::int64_t peak_reserved = 0;   // by it, at most so far
  std::int64_t total = 0;           // of the GPU
  std::int64_t used = 0;            // of the GPU, by everybody
};
// On a CPU: the resident memory of this process and of the machine.
DeviceMemory device_memory(at::Device device);

}  // namespace mgpu::train
