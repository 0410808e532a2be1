#include "runtime/kernels/attention.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/batch.hpp"
#include "runtime/kernels/attention_packed.hpp"
#include "runtime/kernels/attention_parts.hpp"
#include "runtime/kernels/capability.hpp"
#include "runtime/kernels/packed_plan.hpp"
#include "runtime/train/to_device.hpp"
#include "tests/gpu/kernel_checks.hpp"
#include "tests/gpu/kernel_times.hpp"

namespace mgpu::gpu_test {
namespace {

ops::Sequences sequences(const std::vector<int>& lengths) {
  ops::Sequences s;
  std::vector<int> starts{0};
  std::vector<std::int64_t> places;
  for (const int length : lengths) {
    starts.push_back(starts.back() + length);
    s.longest = std::max<std::int64_t>(s.longest, length);
  }
  s.count = static_cast<std::int64_t>(lengths.size());
  for (std::int64_t i = 0; i < s.count; ++i)
    for (int j = 0; j < lengths[static_cast<std::size_t>(i)]; ++j)
      places.push_back(i * s.longest + j);
  s.tokens = starts.back();
  s.equal = s.count * s.longest == s.tokens;
  s.starts = s.host_starts = at::zeros({s.count + 1}, at::kInt);
  for (std::size_t i = 0; i < starts.size(); ++i)
    s.starts[static_cast<std::int64_t>(i)] = starts[i];
  s.places = at::zeros({s.tokens}, at::kLong);
  for (std::size_t i = 0; i < places.size(); ++i)
    s.places[static_cast<std::int64_t>(i)] = places[i];
  return s;
}

enum class Method { flash, cudnn_parts, cudnn_packed };

const char* words_for(Method method) {
  return method == Method::flash         ? " flash"
         : method == Method::cudnn_parts ? " cuDNN in parts"
                                         : " cuDNN packed";
}

bool prepare(ops::Sequences& sequences, const ops::HeadShape& shape, at::ScalarType type,
             Method method) {
  const ops::AttentionShape model{
      .heads = shape.heads, .kv_heads = shape.kv_heads, .head_dim = shape.head_dim};
  // A shape gets its plan when it has come often.
  for (int i = 0; method == Method::cudnn_parts && sequences.cudnn.empty() && i < 10; ++i)
    ops::divide_sequences(sequences, model, at::kCUDA);
  for (int i = 0; method == Method::cudnn_packed && !sequences.packed && i < 10; ++i)
    ops::pack_sequences(sequences, model, {at::kCUDA, 0}, type);
  return sequences.cudnn.empty() != (method == Method::cudnn_parts) &&
         (sequences.packed != nullptr) == (method == Method::cudnn_packed);
}

void check_attention(const std::vector<int>& lengths, const ops::HeadShape& shape,
                     at::ScalarType type, double limit, Method method) {
  const auto host = sequences(lengths);
  auto device = host;
  require("attention is computed as it should be", prepare(device, shape, type, method));
  device.starts = host.starts.to(at::kCUDA);
  device.places = host.places.to(at::kCUDA);
  // NaN behind the last token: no result may depend on it.
  const auto width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  const auto space =
      at::full({host.tokens + 256, width}, std::nan(""), at::TensorOptions(at::kCUDA).dtype(type));
  const auto qkv = space.narrow(0, 0, host.tokens).copy_(draw({host.tokens, width}, type));
  const auto g = draw({host.tokens, shape.heads * shape.head_dim}, type);
  const auto got = ops::attention(qkv, shape, device);
  const auto wanted = ops::attention(reference(qkv), shape, host);
  const std::string name = std::string(device.equal ? " equal " : " ragged ") + name_of(type) +
                           (type == at::kFloat ? "" : words_for(method));
  compare("attention" + name, got.out, wanted.out, limit);
  compare("attention_backward" + name, ops::attention_backward(g, qkv, got, shape, device),
          ops::attention_backward(reference(g), reference(qkv), wanted, shape, host), limit);
}

// Beginnings, and for each the lengths of its branches. The oracle is the same layout on the CPU,
// which the unit tests compare with whole sequences.
void check_shared_beginnings(const std::vector<std::size_t>& beginnings,
                             const std::vector<std::vector<std::size_t>>& branches,
                             const ops::HeadShape& shape, at::ScalarType type, double limit) {
  const std::vector<std::int32_t> some(256, 1);
  data::BatchBuilder builder;
  for (const auto length : beginnings) builder.add({std::span(some).first(length)});
  for (std::size_t i = 0; i < branches.size(); ++i)
    for (const auto length : branches[i]) builder.add_branch(i, {std::span(some).first(length)});
  const auto batch = builder.take();
  const auto host = train::to_device(batch, at::kCPU).sequences;
  const auto device = train::to_device(batch, at::kCUDA).sequences;
  const auto qkv = draw({host.tokens, (shape.heads + 2 * shape.kv_heads) * shape.head_dim}, type);
  const auto g = draw({host.tokens, shape.heads * shape.head_dim}, type);
  const auto got = ops::attention(qkv, shape, device);
  const auto wanted = ops::attention(reference(qkv), shape, host);
  const auto name = std::string(" ") + name_of(type);
  compare("attention to shared beginnings" + name, got.out, wanted.out, limit);
  compare("its log-sum-exps" + name, got.lse, wanted.lse, 1e-3);
  compare("its backward" + name, ops::attention_backward(g, qkv, got, shape, device),
          ops::attention_backward(reference(g), reference(qkv), wanted, shape, host), limit);
}

}  // namespace

void check_attentions(at::ScalarType type) {
  const double limit = type == at::kFloat ? 1e-4 : type == at::kHalf ? 4e-3 : 1e-2;
  const bool packs = ops::has_packed_plans() && ops::capability_of({at::kCUDA, 0}) >= 90;
  for (const auto method : {Method::flash, Method::cudnn_parts, Method::cudnn_packed}) {
    if (method != Method::flash && type == at::kFloat) continue;
    if (method == Method::cudnn_packed && !packs) continue;
    const auto check = [&](const std::vector<int>& lengths, const ops::HeadShape& shape) {
      check_attention(lengths, shape, type, limit, method);
    };
    check({64, 64, 64}, {8, 2, 64});
    // Lengths that are padded for cuDNN in parts.
    check({70, 70, 70}, {8, 2, 64});
    check({193}, {12, 2, 128});
    check({2}, {8, 2, 64});
    check({128, 128}, {4, 4, 128});
    // In parts: the short ones by flash attention.
    if (method != Method::flash) check({300, 2500, 1, 2100, 4096}, {12, 2, 128});
    if (method != Method::cudnn_parts) check({5, 64, 1, 130}, {8, 2, 64});
  }
  check_shared_beginnings({200}, {{64, 64, 64, 64}}, {12, 2, 128}, type, limit);
  check_shared_beginnings({5, 130, 1}, {{7, 1, 33}, {129}, {2, 70}}, {8, 2, 64}, type, limit);
  check_shared_beginnings({1, 1}, {{1, 1}, {1}}, {8, 2, 64}, type, limit);
}

}  // namespace mgpu::gpu_test
