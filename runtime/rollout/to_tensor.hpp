#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <vector>

namespace mgpu::rollout {

// Copies 32-bit or 64-bit numbers to a device; `values` may be freed when it returns.
template <class T>
at::Tensor to_tensor(const std::vector<T>& values, at::Device device) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  const auto type = sizeof(T) == 4 ? at::kInt : at::kLong;
  const auto host = at::from_blob(const_cast<T*>(values.data()),
                                  {static_cast<std::int64_t>(values.size())}, type);
  return device.is_cpu() ? host.clone() : host.to(device);
}

}  // namespace mgpu::rollout
