#include "runtime/train/fp8_support.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "runtime/kernels/fp8_product.hpp"
#include "runtime/model/linear_layers.hpp"

namespace mgpu::train {
namespace {

bool is_in_mlp(const model::LinearLayer& layer) {
  return layer.product == model::Product::gate_up || layer.product == model::Product::down;
}

}  // namespace

std::optional<std::string> fp8_note(const TrainConfig& config, const model::ModelConfig& model,
                                    at::Device device) {
  if (config.fp8 == Fp8::none || !device.is_cuda()) return {};
  if (!ops::has_fp8_products(device))
    return config.fp8 == Fp8::base
               ? "fp8: this GPU multiplies in the type of the computation, to which weights are "
                 "converted for each product; products in fp8 need a Hopper GPU and CUDA 12.9 or "
                 "newer"
               : "fp8: mlp has no effect: products in fp8 need a Hopper GPU and CUDA 12.9 or newer";
  std::set<std::string_view> other;
  for (const auto& layer : model::linear_layers(model))
    if ((config.fp8 == Fp8::base || is_in_mlp(layer)) &&
        (layer.out % ops::kFp8Block != 0 || layer.in % ops::kFp8Block != 0))
      other.insert(layer.name());
  if (other.empty()) return {};
  return fmt::format(
      "fp8: multiplies {} in 16 bits, because products in fp8 need sizes that are "
      "multiples of {}",
      fmt::join(other, ", "), ops::kFp8Block);
}

}  // namespace mgpu::train
