#pragma once

#include <string>
#include <string_view>

// Which GPUs and drivers a build can use. Pure functions.
namespace mgpu::train {

struct Gpu {
  int number = 0;
  std::string name;    // as the driver reports it
  int capability = 0;  // times ten: 75 is 7.5
};

// Whether kernels that were compiled for these architectures run on a GPU. They are named as CMake
// does, separated by blanks: machine code ("80-real") runs on GPUs of the same major version that
// are as new or newer, PTX ("90-virtual") on all that are as new or newer, and "90" is both.
bool has_code(std::string_view architectures, int capability);

// Why a GPU cannot be used, and what to do; empty: it can. Without architectures the build has no
// kernels of ours, and torch's decide, of which those for CUDA 13 begin with 7.5.
std::string unsupported_gpu(const Gpu& gpu, std::string_view architectures, int cuda_major);

// Why the driver cannot be used: it supports CUDA `driver`, and the build needs `needed` (13000
// is 13.0).
std::string old_driver(int driver, int needed);

}  // namespace mgpu::train
