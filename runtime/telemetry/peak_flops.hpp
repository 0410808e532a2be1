#pragma once

#include <string_view>

namespace mgpu::telemetry {

// The dense bf16 TFLOP/s with fp32 accumulation that NVIDIA states for a GPU with this name (as
// reported by NVML and CUDA). 0: the GPU is not in the table, is a MIG instance, or is a laptop
// GPU, whose speed depends on its power limit.
double peak_tflops(std::string_view gpu_name);

}  // namespace mgpu::telemetry
