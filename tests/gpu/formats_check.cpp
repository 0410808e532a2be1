// Weights in 4 and 8 bits, and the noise of NEFTune: on the GPU as on the CPU.
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <string>

#include "runtime/kernels/int8.hpp"
#include "runtime/kernels/nf4.hpp"
#include "runtime/kernels/noise.hpp"
#include "runtime/kernels/ops.hpp"
#include "tests/gpu/kernel_checks.hpp"
#include "tests/gpu/kernel_times.hpp"

namespace mgpu::gpu_test {
namespace {

using at::Tensor;

// Codes and scales must match bit for bit, dequantized values within rounding.
void check_nf4(std::int64_t rows, std::int64_t columns, bool nested, at::ScalarType type,
               double limit) {
  const auto weight = at::randn({rows, columns}).mul_(0.02).to(at::kBFloat16);
  const auto levels = std::get<0>(at::randn({ops::kNestedLevels}).tanh_().sort());
  const auto bytes = ops::nf4_layout(rows * columns, nested).bytes;
  const auto room = [&](at::Device device) {
    return at::zeros({bytes}, at::TensorOptions(device).dtype(at::kByte));
  };
  const auto here = room(at::kCPU), there = room(at::kCUDA);
  const auto host = ops::nf4_over(here, rows, columns, nested);
  const auto device = ops::nf4_over(there, rows, columns, nested);
  ops::quantize(weight, levels, host);
  ops::quantize(weight.to(at::kCUDA), levels.to(at::kCUDA), device);
  const auto name = std::string(nested ? ", nested" : "") + " [" + std::to_string(rows) + ", " +
                    std::to_string(columns) + "]";
  compare("nf4 codes" + name, device.codes, host.codes, 0);
  compare("nf4 scales" + name, device.scales, host.scales, nested ? 1e-2 : 0);
  there.copy_(here);
  const auto got = at::zeros({rows, columns}, at::TensorOptions(at::kCUDA).dtype(type));
  const auto wanted = at::zeros({rows, columns});
  ops::dequantize(device, got);
  ops::dequantize(host, wanted);
  compare("nf4 values" + name, got, wanted, limit);
  compare("nf4 is close to the original" + name, got, weight, 0.12);
}

// The same.
void check_int8(std::int64_t rows, std::int64_t columns, at::ScalarType type, double limit) {
  const auto weight = at::randn({rows, columns}).mul_(0.02).to(at::kBFloat16);
  const auto bytes = ops::int8_layout(rows, columns).bytes;
  const auto host = ops::int8_over(at::zeros({bytes}, at::kByte), rows, columns);
  const auto device = ops::int8_over(
      at::zeros({bytes}, at::TensorOptions(at::kCUDA).dtype(at::kByte)), rows, columns);
  ops::quantize(weight, host);
  ops::quantize(weight.to(at::kCUDA), device);
  compare("int8 codes", device.codes, host.codes, 0);
  compare("int8 scales", device.scales, host.scales, 0);
  const auto got = at::zeros({rows, columns}, at::TensorOptions(at::kCUDA).dtype(type));
  const auto wanted = at::zeros({rows, columns});
  ops::dequantize(device, got);
  ops::dequantize(host, wanted);
  compare("int8 values", got, wanted, limit);
  compare("int8 is close to the original", got, weight, 0.01);
}

void check_noise(std::int64_t rows, std::int64_t columns, at::ScalarType type, double limit) {
  const auto starts = at::zeros({2}, at::kInt);
  starts.select(0, 1).fill_(rows);
  auto here = at::zeros({rows, columns});
  auto there = at::zeros({rows, columns}, at::TensorOptions(at::kCUDA).dtype(type));
  ops::add_noise_(here, starts, 5, 7);
  ops::add_noise_(there, starts.to(at::kCUDA), 5, 7);
  compare("noise", there, here, limit);
}

}  // namespace

void check_formats(at::ScalarType type) {
  const bool exact = type == at::kFloat;
  check_nf4(512, 896, false, type, exact ? 0 : 4e-3);
  check_nf4(4864, 896, true, type, exact ? 0 : 4e-3);
  check_int8(896, 4864, type, exact ? 1e-6 : 4e-3);
  check_noise(1031, 896, type, exact ? 1e-6 : 4e-3);
}

}  // namespace mgpu::gpu_test
