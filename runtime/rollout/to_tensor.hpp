#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace mgpu::rollout {

// Copies 32-bit or 64-bit numbers to a device; `values` may be freed when it returns. It does not
// wait for a GPU: the copy is ordered on the current stream, and the allocator keeps the pinned
// memory until then.
template <class T>
at::Tensor to_tensor(const std::vector<T>& values, at::Device device) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  const auto type = sizeof(T) == 4 ? at::kInt : at::kLong;
  const auto host = at::empty({static_cast<std::int64_t>(values.size())},
                              at::TensorOptions(type).pinned_memory(device.is_cuda()));
  if (!values.empty()) std::memcpy(host.data_ptr(), values.data(), values.size() * sizeof(T));
  return device.is_cpu() ? host : host.to(device, /*non_blocking=*/true);
}

}  // namespace mgpu::rollout
