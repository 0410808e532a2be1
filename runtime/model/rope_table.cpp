#include "runtime/model/rope_table.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/sin.h>

#include <algorithm>

#include "runtime/model/rope.hpp"

namespace mgpu::model {
namespace {

using at::Tensor;

// ATen divides 2,048 elements or more among its threads. The vectorised functions that they then
// call at the same time belong to a library that initialises itself at its first call.
constexpr std::int64_t kOneThread = 1024;

// f(out, angles), computed by this thread alone.
template <class F>
Tensor in_one_thread(const Tensor& angles, F f) {
  Tensor out = at::empty_like(angles);
  const auto rows =
      std::max<std::int64_t>(1, kOneThread / std::max<std::int64_t>(1, angles.size(1)));
  for (std::int64_t begin = 0; begin < angles.size(0); begin += rows) {
    const auto count = std::min(rows, angles.size(0) - begin);
    Tensor part = out.narrow(0, begin, count);
    f(part, angles.narrow(0, begin, count));
  }
  return out;
}

}  // namespace

RopeTable rope_table(const ModelConfig& config, std::int64_t positions, at::Device device) {
  auto frequencies = rope_frequencies(config.rope, config.head_dim);
  const auto pairs = static_cast<std::int64_t>(frequencies.size());
  const auto angles = at::outer(at::arange(positions, at::kFloat),
                                at::from_blob(frequencies.data(), {pairs}, at::kFloat));
  const auto cos = in_one_thread(angles, [](Tensor& out, const Tensor& x) { at::cos_out(out, x); });
  const auto sin = in_one_thread(angles, [](Tensor& out, const Tensor& x) { at::sin_out(out, x); });
  return {cos.to(device), sin.to(device)};
}

}  // namespace mgpu::model
