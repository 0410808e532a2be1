#pragma once

namespace mgpu::train {

// Restricts this process to operations that give the same bits in every run: ATen's deterministic
// versions, cuBLAS with workspaces of a fixed size, and no sums inside NVLink's switches. Call it
// before the first use of a GPU and before the ranks are connected: NCCL reads its settings then.
// An environment variable that is already set keeps its value.
void require_determinism();

}  // namespace mgpu::train
