#pragma once

#include <string>
#include <vector>

#include "launcher/doctor/facts.hpp"

namespace mgpu::launcher {

// Describes the LibTorch in the first of these folders that has libtorch_cpu.so, from its files,
// without loading it. Searches the CUDA runtime library and NCCL in its own folder, in `others` and
// in the folders of Python packages.
TorchFacts read_torch(const std::vector<std::string>& folders,
                      const std::vector<std::string>& others = {});

}  // namespace mgpu::launcher
