#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace mgpu::rollout {

// Larger copies wait for the GPU, since pinned memory is never given back.
inline constexpr std::size_t kMostPinned = std::size_t{1} << 20;

// Copies 32-bit or 64-bit numbers to a device; `values` may be freed when it returns. Unless there
// are many it does not wait for a GPU: the copy is ordered on the current stream, and the allocator
// keeps the pinned memory until then.
template <class T>
at::Tensor to_tensor(const std::vector<T>& values, at::Device device) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  const auto type = sizeof(T) == 4 ? at::kInt : at::kLong;
  const bool pinned = device.is_cuda() && values.size() * sizeof(T) <= kMostPinned;
  const auto host = at::empty({static_cast<std::int64_t>(values.size())},
                              at::TensorOptions(type).pinned_memory(pinned));
  if (!values.empty()) std::memcpy(host.data_ptr(), values.data(), values.size() * sizeof(T));
  return device.is_cpu() ? host : host.to(device, /*non_blocking=*/pinned);
}

}  // namespace mgpu::rollout
