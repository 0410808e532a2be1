#pragma once

#include <string_view>

namespace mgpu::telemetry {

// The dense bf16 TFLOP/s, accumulating in fp32, that NVIDIA states for a GPU of this name as NVML
// and CUDA tell it. 0: not in the table, or a part of a GPU (MIG) or a laptop's, whose power
// decides.
double peak_tflops(std::string_view gpu_name);

}  // namespace mgpu::telemetry
