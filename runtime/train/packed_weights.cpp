#include "runtime/train/packed_weights.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/dynamic_levels.hpp"
#include "runtime/kernels/fp8.hpp"
#include "runtime/kernels/int8.hpp"
#include "runtime/kernels/nf4.hpp"
#include "runtime/model/model_shape.hpp"

namespace mgpu::train {
namespace {

model::MatrixFormat format_of_base(const TrainConfig& config) {
  if (config.load_in_4bit) return model::MatrixFormat::nf4;
  if (config.load_in_8bit) return model::MatrixFormat::int8;
  return config.fp8 == Fp8::base ? model::MatrixFormat::fp8 : model::MatrixFormat::plain;
}

template <class T>
at::Tensor over(const std::vector<T>& values, at::ScalarType type) {
  return at::from_blob(const_cast<T*>(values.data()),  // read only
                       {static_cast<std::int64_t>(values.size())}, type);
}

template <class T>
std::vector<T> values(const at::Tensor& tensor) {
  const auto* first = tensor.const_data_ptr<T>();
  return {first, first + tensor.numel()};
}

at::Tensor levels() {
  const auto& all = checkpoint::dynamic_levels();
  return at::from_blob(const_cast<float*>(all.data()), {ops::kNestedLevels}, at::kFloat);
}

at::Tensor empty_bytes(std::int64_t elements, bool nested, at::Device device) {
  return at::zeros({ops::nf4_layout(elements, nested).bytes},
                   at::TensorOptions(device).dtype(at::kByte));
}

}  // namespace

model::Packing packing_of(const TrainConfig& config, const ModelSource& source) {
  model::Packing result;
  result.format = format_of_base(config);
  result.nested = config.use_bnb_nested_quant;
  result.mlp_in_fp8 = config.fp8 == Fp8::mlp;
  if (result.format != model::MatrixFormat::nf4 || !source.config.nf4 || !source.weights)
    return result;
  std::optional<bool> nested;
  for (const auto& tensor : model::tensor_plan(source.config)) {
    if (!checkpoint::is_nf4(*source.weights, tensor.name)) {
      result.excepted.insert(tensor.name);
      continue;
    }
    const bool this_one = source.weights->find(tensor.name + ".nested_absmax").has_value();
    if (nested.value_or(this_one) != this_one) {
      throw rendezvous::InputError(
          fmt::format("{}: {} {} 8-bit scales, unlike the 4-bit weights before it; mixing both is "
                      "not supported",
                      source.folder, tensor.name, this_one ? "has" : "does not have"));
    }
    nested = this_one;
  }
  result.nested = nested.value_or(result.nested);
  return result;
}

at::Tensor packed_bytes(const at::Tensor& weight, const model::UnitLayout& unit,
                        at::Device device) {
  const auto rows = weight.size(0), columns = weight.size(1);
  const auto zeros = [&](std::int64_t bytes) {
    return at::zeros({bytes}, at::TensorOptions(device).dtype(at::kByte));
  };
  if (unit.format == model::MatrixFormat::int8) {
    auto bytes = zeros(ops::int8_layout(rows, columns).bytes);
    ops::quantize(weight.to(device), ops::int8_over(bytes, rows, columns));
    return bytes;
  }
  if (unit.format == model::MatrixFormat::fp8) {
    auto bytes = zeros(ops::fp8_layout(rows, columns).bytes);
    ops::quantize(weight.to(device), ops::fp8_over(bytes, rows, columns));
    return bytes;
  }
  return quantized_bytes(weight, unit.nested, device);
}

at::Tensor quantized_bytes(const at::Tensor& weight, bool nested, at::Device device) {
  const auto on_device = weight.to(device);
  auto bytes = empty_bytes(weight.numel(), nested, device);
  ops::quantize(on_device, levels().to(device),
                ops::nf4_over(bytes, weight.size(0), weight.size(1), nested));
  return bytes;
}

at::Tensor quantized_bytes(const checkpoint::Nf4Tensor& matrix, at::Device device) {
  const bool nested = matrix.nested.has_value();
  const auto rows = matrix.shape.at(0), columns = matrix.shape.at(1);
  auto bytes = empty_bytes(rows * columns, nested, at::kCPU);
  const auto to = ops::nf4_over(bytes, rows, columns, nested);
  to.codes.copy_(over(matrix.packed, at::kByte));
  if (nested) {
    const auto& n = *matrix.nested;
    to.scales.copy_(over(n.indices, at::kByte));
    to.outer.copy_(over(n.scales, at::kFloat));
    to.levels.copy_(at::from_blob(const_cast<float*>(n.levels.data()), {ops::kNestedLevels}));
    to.offset.fill_(n.offset);
  } else {
    to.scales.copy_(over(matrix.scales, at::kFloat));
  }
  return bytes.to(device);
}

checkpoint::Nf4Tensor from_bytes(const at::Tensor& bytes, const std::vector<std::int64_t>& shape,
                                 bool nested, checkpoint::DType type) {
  const auto host = bytes.to(at::kCPU);
  const auto parts = ops::nf4_over(host, shape.at(0), shape.at(1), nested);
  checkpoint::Nf4Tensor matrix{
      .dtype = type, .shape = shape, .packed = values<std::uint8_t>(parts.codes)};
  if (!nested) {
    matrix.scales = values<float>(parts.scales);
    return matrix;
  }
  checkpoint::NestedScales scales{.indices = values<std::uint8_t>(parts.scales),
                                  .scales = values<float>(parts.outer),
                                  .offset = parts.offset.item<float>()};
  const auto all = values<float>(parts.levels);
  std::copy(all.begin(), all.end(), scales.levels.begin());
  matrix.nested = std::move(scales);
  return matrix;
}

at::Tensor dequantized(const checkpoint::Nf4Tensor& matrix) {
  return over(checkpoint::dequantize_nf4(matrix), at::kFloat).clone().view(matrix.shape);
}

}  // namespace mgpu::train
