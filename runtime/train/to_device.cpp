#include "runtime/train/to_device.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
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

ops::SharedBeginnings beginnings_of(const data::Batch& batch) {
  ops::SharedBeginnings result;
  if (batch.branches.empty()) return result;
  const auto& starts = batch.starts;
  const auto count = batch.branches.size() - 1;
  result.starts.assign(starts.begin(), starts.begin() + static_cast<std::ptrdiff_t>(count) + 1);
  result.tokens = result.starts.back();
  for (const auto branch : batch.branches)
    result.branch_starts.push_back(starts[static_cast<std::size_t>(branch)] - result.starts.back());
  for (std::size_t i = 0; i < count; ++i) {
    const auto length = [i](const auto& all) { return std::int64_t{all[i + 1]} - all[i]; };
    result.longest = std::max(result.longest, length(result.starts));
    result.longest_branches = std::max(result.longest_branches, length(result.branch_starts));
  }
  result.count = static_cast<std::int64_t>(count);
  return result;
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
  s.beginnings = beginnings_of(batch);
  if (s.beginnings.count > 0) {
    s.beginnings.device_starts = send(s.beginnings.starts);
    s.beginnings.device_branch_starts = send(s.beginnings.branch_starts);
  }
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
