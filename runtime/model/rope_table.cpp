#include "runtime/model/rope_table.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/sin.h>

#include "runtime/model/rope.hpp"

namespace mgpu::model {

RopeTable rope_table(const ModelConfig& config, std::int64_t positions, at::Device device) {
  auto frequencies = rope_frequencies(config.rope, config.head_dim);
  const auto pairs = static_cast<std::int64_t>(frequencies.size());
  const auto angles = at::outer(at::arange(positions, at::kFloat),
                                at::from_blob(frequencies.data(), {pairs}, at::kFloat));
  return {at::cos(angles).to(device), at::sin(angles).to(device)};
}

}  // namespace mgpu::model
