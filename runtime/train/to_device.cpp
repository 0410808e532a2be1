#include "runtime/train/to_device.hpp"

#include <ATen/ops/empty.h>

#include <cstring>

namespace mgpu::train {
namespace {

template <class T>
at::Tensor host_tensor(const std::vector<T>& values, bool pinned) {
  const auto dtype = sizeof(T) == 4 ? at::kInt : at::kLong;
  auto tensor = at::empty({static_cast<std::int64_t>(values.size())},
                          at::TensorOptions(dtype).pinned_memory(pinned));
  if (!values.empty()) std::memcpy(tensor.data_ptr(), values.data(), values.size() * sizeof(T));
  return tensor;
}

}  // namespace

model::DeviceBatch to_device(const data::Batch& batch, at::Device device, bool pinned) {
  const bool pins = pinned && device.is_cuda();
  const auto send = [&](const auto& values) {
    return host_tensor(values, pins).to(device, /*non_blocking=*/pins);
  };
  std::vector<std::int64_t> target_rows;
  target_rows.reserve(static_cast<std::size_t>(batch.target_tokens));
  for (std::size_t i = 0; i < batch.targets.size(); ++i)
    if (batch.targets[i] != data::kNoTarget) target_rows.push_back(static_cast<std::int64_t>(i));

  model::DeviceBatch result;
  result.tokens = send(batch.tokens);
  result.positions = send(batch.positions);
  result.targets = send(batch.targets);
  result.target_rows = send(target_rows);
  auto& s = result.sequences;
  s.host_starts = host_tensor(batch.starts, false);
  s.starts = send(batch.starts);
  s.count = static_cast<std::int64_t>(batch.starts.size()) - 1;
  s.longest = batch.longest;
  s.tokens = static_cast<std::int64_t>(batch.tokens.size());
  s.equal = s.count * s.longest == s.tokens;
  if (!s.equal) {
    std::vector<std::int64_t> places;
    places.reserve(batch.tokens.size());
    for (std::int64_t i = 0; i < s.count; ++i) {
      const auto length =
          batch.starts[static_cast<std::size_t>(i) + 1] - batch.starts[static_cast<std::size_t>(i)];
      for (std::int32_t j = 0; j < length; ++j) places.push_back(i * s.longest + j);
    }
    s.places = send(places);
  }
  return result;
}

}  // namespace mgpu::train
