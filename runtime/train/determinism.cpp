#include "runtime/train/determinism.hpp"

#include <ATen/Context.h>
#include <stdlib.h>

namespace mgpu::train {

void require_determinism() {
  constexpr int kKeep = 0;
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", kKeep);
  ::setenv("NCCL_NVLS_ENABLE", "0", kKeep);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}

}  // namespace mgpu::train
