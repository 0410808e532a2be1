#pragma once

#include <string>
#include <vector>

#include "launcher/doctor/facts.hpp"

namespace mgpu::launcher {

// Reads what a LibTorch is off its files, loading none of it: the first of these folders that has
// libtorch_cpu.so. Beside its own folder the CUDA run-time library and NCCL are looked for in
// `others` and where Python's packages have them.
TorchFacts read_torch(const std::vector<std::string>& folders,
                      const std::vector<std::string>& others = {});

}  // namespace mgpu::launcher
