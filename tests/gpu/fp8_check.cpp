// Compares our kernels that convert to 8-bit floating point, and cuBLASLt's products of such
// operands, with the same on the CPU, and times both. Exits with status 1 if any differs.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/kernels/fp8_product.hpp"
#include "runtime/kernels/ops.hpp"
#include "runtime/train/device.hpp"

namespace {

using namespace mgpu;
using at::Tensor;

bool good = true;

void require(const std::string& what, bool holds) {
  good = good && holds;
  printf("%-5s %s\n", holds ? "ok" : "BAD", what.c_str());
}

void compare(const std::string& what, const Tensor& gpu, const Tensor& wanted, double limit) {
  const auto got = gpu.to(at::kCPU).to(at::kFloat), right = wanted.to(at::kCPU).to(at::kFloat);
  const double error =
      got.sub(right).norm().item<float>() / std::max(1e-12F, right.norm().item<float>());
  const bool fine = error <= limit;
  good = good && fine;
  printf("%-5s %-60s error %.2e (limit %.0e)\n", fine ? "ok" : "BAD", what.c_str(), error, limit);
}

std::string name_of(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
  return " [" + std::to_string(rows) + ", " + std::to_string(columns) + "] " + toString(type);
}

bool same_bytes(const Tensor& gpu, const Tensor& cpu) {
  return at::equal(gpu.to(at::kCPU).view(at::kByte), cpu.view(at::kByte));
}

// Memory that a coming result may get, so that what a kernel does not write is NaN.
void poison(std::int64_t bytes) {
  at::full({bytes}, 0xff, at::TensorOptions(at::kCUDA).dtype(at::kByte));
}

// Rows of very different sizes, some of them 0, with denormal numbers.
Tensor rows_to_quantize(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
  auto x = at::randn({rows, columns});
  for (std::int64_t row = 0; row < rows; ++row)
    x.select(0, row).mul_(row % 5 == 4 ? 0 : std::exp2(static_cast<double>(row % 23) - 14));
  if (type != at::kHalf) x.select(0, 0).mul_(1e-37);
  return x.to(type);
}

void check_rows(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
  const auto name = name_of(rows, columns, type);
  const auto x = rows_to_quantize(rows, columns, type);
  const auto wanted = ops::quantize_rows(x);
  poison(ops::fp8_rows(rows) * columns);
  poison(ops::fp8_rows(rows) * columns / 32);
  const auto got = ops::quantize_rows(x.to(at::kCUDA));
  require("codes of rows" + name, same_bytes(got.codes, wanted.codes));
  require("scales of rows" + name, same_bytes(got.scales, wanted.scales));
}

void check_blocks(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
  const auto name = name_of(rows, columns, type);
  const auto w = at::randn({rows, columns}).mul_(.02).to(type);
  const auto wanted = ops::quantized(w);
  poison(rows * columns);
  poison(wanted.scales.numel() * 4);
  const auto got = ops::quantized(w.to(at::kCUDA));
  require("codes of blocks" + name, same_bytes(got.codes, wanted.codes));
  require("scales of blocks" + name, same_bytes(got.scales, wanted.scales));
  const Tensor there = at::empty({rows, columns}, got.scales.options());
  const Tensor here = at::empty({rows, columns});
  ops::dequantize(got, there);
  ops::dequantize(wanted, here);
  compare("values of blocks" + name, there, here, 0);
}

void check_swiglu(std::int64_t rows, std::int64_t width, at::ScalarType type) {
  const auto name = name_of(rows, width, type);
  const auto gate_up = at::randn({rows, 2 * width}).to(type).to(at::kCUDA);
  const auto gradient = at::randn({rows, width}).to(type).to(at::kCUDA);
  const double limit = type == at::kFloat ? 1e-6 : 1e-3;
  poison(rows * width * gate_up.element_size());
  poison(ops::fp8_rows(rows) * width);
  poison(ops::fp8_rows(rows) * width / 32);
  const auto got = ops::swiglu_with_fp8(gate_up);
  const auto codes = ops::quantize_rows(got.y);
  compare("swiglu" + name, got.y, ops::swiglu(gate_up), limit);
  require("codes of swiglu" + name, same_bytes(got.in_fp8.codes, codes.codes.to(at::kCPU)) &&
                                        same_bytes(got.in_fp8.scales, codes.scales.to(at::kCPU)));
  Tensor act = gradient.clone(), other_act = gradient.clone();
  poison(rows * 2 * width * gate_up.element_size());
  poison(ops::fp8_rows(rows) * 2 * width);
  const auto back = ops::swiglu_backward_with_fp8_(act, gate_up);
  const auto back_codes = ops::quantize_rows(back.y);
  compare("swiglu_backward" + name, back.y, ops::swiglu_backward_(other_act, gate_up), limit);
  compare("swiglu again" + name, act, other_act, limit);
  require("codes of swiglu_backward" + name,
          same_bytes(back.in_fp8.codes, back_codes.codes.to(at::kCPU)) &&
              same_bytes(back.in_fp8.scales, back_codes.scales.to(at::kCPU)));
}

void check_transposed(const std::vector<std::int64_t>& rows, std::int64_t columns) {
  std::vector<ops::Fp8> here, there;
  std::int64_t all = 0;
  for (const auto part : rows) {
    const auto w = at::randn({part, columns}).to(at::kBFloat16);
    here.push_back(ops::quantized(w));
    there.push_back(ops::quantized(w.to(at::kCUDA)));
    all += part;
  }
  const auto wanted = ops::transposed(here);
  poison(all * columns);
  const auto got = ops::transposed(there);
  const auto name = name_of(all, columns, at::kByte);
  require("codes of the transpose" + name, same_bytes(got.codes, wanted.codes));
  require("scales of the transpose" + name, same_bytes(got.scales, wanted.scales));
}

// With values that bf16 holds exactly, so that only the sums are rounded.
void check_products(std::int64_t rows, const std::vector<std::int64_t>& parts, std::int64_t columns,
                    at::ScalarType type) {
  std::vector<ops::Fp8> here, there;
  std::int64_t outputs = 0;
  for (const auto part : parts) {
    const auto w = at::randn({part, columns}).mul_(.02).to(type);
    here.push_back(ops::quantized(w));
    there.push_back(ops::quantized(w.to(at::kCUDA)));
    outputs += part;
  }
  const auto name = name_of(rows, outputs, type) + " depth " + std::to_string(columns);
  const auto x = at::randn({rows, columns}).to(type), gy = at::randn({rows, outputs}).to(type);
  const double limit = type == at::kHalf ? 2e-3 : 5e-3;
  for (const double beta : {0.0, 1.0}) {
    const auto before = at::randn({rows, outputs}).to(type);
    const auto before_x = at::randn({rows, columns}).to(type);
    const auto with = beta == 0 ? " " : " added ";
    const auto y = ops::empty_for_fp8(rows, outputs, before.options());
    const auto gx = ops::empty_for_fp8(rows, columns, before.options());
    const auto gpu_y = ops::empty_for_fp8(rows, outputs, y.options().device(at::kCUDA));
    const auto gpu_gx = ops::empty_for_fp8(rows, columns, y.options().device(at::kCUDA));
    for (const auto& [to, value] :
         {std::pair{y, before}, {gpu_y, before}, {gx, before_x}, {gpu_gx, before_x}})
      Tensor(to).copy_(beta == 0 ? at::full_like(value, std::numeric_limits<double>::quiet_NaN())
                                 : value);
    ops::multiply(y, ops::quantize_rows(x), here, beta);
    ops::multiply(gpu_y, ops::quantize_rows(x.to(at::kCUDA)), there, beta);
    compare("product" + std::string(with) + name, gpu_y, y, limit);
    ops::multiply_by_transposed(gx, ops::quantize_rows(gy), here, beta);
    ops::multiply_by_transposed(gpu_gx, ops::quantize_rows(gy.to(at::kCUDA)), there, beta);
    compare("product by W" + std::string(with) + name, gpu_gx, gx, limit);
  }
  const auto cuda_x = ops::quantize_rows(x.to(at::kCUDA));
  const auto first = ops::empty_for_fp8(rows, outputs, x.options().device(at::kCUDA));
  const auto second = ops::empty_for_fp8(rows, outputs, first.options());
  ops::multiply(first, cuda_x, there, 0);
  ops::multiply(second, cuda_x, there, 0);
  require("products of the same have the same bits" + name, at::equal(first, second));
}

void check_not_finite(double value) {
  auto x = at::randn({7, 256}).to(at::kBFloat16);
  x[3][200] = value;
  const auto w = ops::quantized(at::randn({128, 256}).to(at::kBFloat16).to(at::kCUDA));
  const auto y = ops::empty_for_fp8(7, 128, x.options().device(at::kCUDA));
  ops::multiply(y, ops::quantize_rows(x.to(at::kCUDA)), {w}, 0);
  const auto finite = at::isfinite(y).to(at::kCPU);
  require("what is not finite makes its row not finite, " + std::to_string(value),
          !finite[3].any().item<bool>() && finite.sum().item<std::int64_t>() == 6 * 128);
}

template <class Run>
double time(const std::string& what, double amount, const char* unit, const Run& run) {
  for (int i = 0; i < 3; ++i) run();
  train::wait_for(at::kCUDA);
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kTimes = 20;
  for (int i = 0; i < kTimes; ++i) run();
  train::wait_for(at::kCUDA);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const double each = took.count() / kTimes;
  printf("      %-60s %7.1f us, %6.0f %s\n", what.c_str(), each * 1e6, amount / each, unit);
  return each;
}

void time_layer(const std::string& layer, std::int64_t rows, const std::vector<std::int64_t>& parts,
                std::int64_t columns) {
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  std::int64_t outputs = 0;
  for (const auto part : parts) outputs += part;
  const auto x = at::randn({rows, columns}, options), w = at::randn({outputs, columns}, options);
  const auto gy = at::randn({rows, outputs}, options);
  std::vector<ops::Fp8> matrices;
  std::int64_t begin = 0;
  for (const auto part : parts) {
    matrices.push_back(ops::quantized(w.narrow(0, begin, part)));
    begin += part;
  }
  const auto y = ops::empty_for_fp8(rows, outputs, options);
  const auto gx = ops::empty_for_fp8(rows, columns, options);
  const auto x8 = ops::quantize_rows(x), gy8 = ops::quantize_rows(gy);
  const auto in = static_cast<double>(rows * columns), out = static_cast<double>(rows * outputs);
  const auto weight = static_cast<double>(outputs * columns);
  const double flops = 2 * in * static_cast<double>(outputs);
  time(layer + " bf16", flops / 1e12, "TFLOP/s", [&] { ops::product(x, w.t()); });
  time(layer + " bf16 gradient", flops / 1e12, "TFLOP/s", [&] { ops::product(gy, w); });
  time(layer + " fp8", flops / 1e12, "TFLOP/s", [&] { ops::multiply(y, x8, matrices, 0); });
  time(layer + " fp8 added", flops / 1e12, "TFLOP/s", [&] { ops::multiply(y, x8, matrices, 1); });
  time(layer + " fp8 gradient, with the transpose", flops / 1e12, "TFLOP/s",
       [&] { ops::multiply_by_transposed(gx, gy8, matrices, 0); });
  time(layer + " x to fp8", in * 3 / 1e9, "GB/s", [&] { ops::quantize_rows(x); });
  time(layer + " gradient to fp8", out * 3 / 1e9, "GB/s", [&] { ops::quantize_rows(gy); });
  time(layer + " weight to fp8", weight * 3 / 1e9, "GB/s", [&] { ops::quantized(w); });
  time(layer + " transpose", weight * 2 / 1e9, "GB/s", [&] { ops::transposed(matrices); });
}

void time_swiglu(std::int64_t rows, std::int64_t width) {
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const auto gate_up = at::randn({rows, 2 * width}, options);
  Tensor g = at::randn({rows, width}, options);
  const auto name = " " + std::to_string(width);
  const auto size = static_cast<double>(rows * width) / 1e9;
  time("swiglu" + name, size * 6, "GB/s", [&] { ops::swiglu(gate_up); });
  time("swiglu and its codes" + name, size * 7, "GB/s", [&] { ops::swiglu_with_fp8(gate_up); });
  time("swiglu_backward" + name, size * 12, "GB/s", [&] { ops::swiglu_backward_(g, gate_up); });
  time("swiglu_backward and its codes" + name, size * 14, "GB/s",
       [&] { ops::swiglu_backward_with_fp8_(g, gate_up); });
}

}  // namespace

// With the word "check" nothing is timed.
int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);  // a kernel that fails ends the program
  const bool timed = argc < 2 || std::string_view(argv[1]) != "check";
  at::manual_seed(3);
  const at::Device gpu(at::kCUDA, 0);
  const bool products = ops::has_fp8_products(gpu);
  printf("products in fp8: %s\n", products ? "yes" : "no");
  for (const auto type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    for (const std::int64_t rows : {1, 16, 63, 64, 65, 301}) {
      check_rows(rows, 128, type);
      check_rows(rows, 896, type);
    }
    check_rows(33, 18944, type);
    check_rows(5, 200, type);  // ATen's operations
    for (const std::int64_t rows : {1, 31, 32, 33, 301}) {
      check_swiglu(rows, 128, type);
      check_swiglu(rows, 896, type);
    }
    check_blocks(128, 128, type);
    check_blocks(256, 1536, type);
    check_blocks(896, 640, type);
    check_blocks(200, 130, type);
  }
  check_transposed({128}, 128);
  check_transposed({256, 128, 128}, 896);
  check_transposed({640, 1280}, 384);
  if (products) {
    for (const auto type : {at::kBFloat16, at::kHalf})
      for (const std::int64_t rows : {1, 15, 16, 130, 1027}) {
        check_products(rows, {128}, 128, type);
        check_products(rows, {896, 128, 128}, 896, type);
        check_products(rows, {1280, 1280}, 640, type);
      }
    check_not_finite(std::numeric_limits<double>::infinity());
    check_not_finite(-std::numeric_limits<double>::infinity());
    check_not_finite(std::numeric_limits<double>::quiet_NaN());
  }
  if (products && timed) {
    time_swiglu(8192, 18944);
    time_swiglu(8192, 8960);
    time_layer("7B qkv", 8192, {3584, 512, 512}, 3584);
    time_layer("7B o", 8192, {3584}, 3584);
    time_layer("7B gate, up", 8192, {18944, 18944}, 3584);
    time_layer("7B down", 8192, {3584}, 18944);
    time_layer("1.5B gate, up", 8192, {17920}, 1536);
    time_layer("1.5B down", 8192, {1536}, 8960);
  }
  printf("%s\n", good ? "fp8 agrees" : "fp8 differs");
  return good ? 0 : 1;
}
