#include "tests/gpu/kernel_times.hpp"

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "runtime/kernels/int8.hpp"
#include "runtime/kernels/nf4.hpp"
#include "runtime/kernels/ops.hpp"
#include "runtime/optim/adamw_step.hpp"
#include "runtime/optim/moment_vectors.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/host_tensor.hpp"

namespace mgpu::gpu_test {
namespace {

using at::Tensor;

template <class Run>
void time(const char* what, double bytes, const Run& run) {
  for (int i = 0; i < 3; ++i) run();
  train::wait_for(at::kCUDA);
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kTimes = 20;
  for (int i = 0; i < kTimes; ++i) run();
  train::wait_for(at::kCUDA);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  printf("      %-52s %.0f us, %.0f GB/s\n", what, took.count() / kTimes * 1e6,
         bytes * kTimes / took.count() / 1e9);
}

void time_adamw() {
  const std::int64_t n = 1 << 27;
  const at::TensorOptions on_gpu(at::kCUDA);
  const auto one = at::full({}, 1.0, on_gpu), zero = at::zeros({}, on_gpu);
  const auto master = at::randn({n}, on_gpu), grad = at::randn({n}, on_gpu);
  const auto value = at::zeros({n}, on_gpu.dtype(at::kBFloat16));
  for (const auto type : {at::kFloat, at::kBFloat16, at::kByte}) {
    const auto moment = [&](bool first) {
      ops::Moment m{at::zeros({n}, on_gpu.dtype(type)), {}, {}, 0};
      if (type != at::kByte) return m;
      m.scales = at::zeros({ops::moment_blocks(0, n)}, on_gpu);
      m.table =
          first ? optim::first_moment_table(at::kCUDA) : optim::second_moment_table(at::kCUDA);
      return m;
    };
    const optim::Span span{master, value, grad, moment(true), moment(false), true};
    const double bytes = 4 + 4 + 2 + 4 + 4.0 * static_cast<double>(c10::elementSize(type));
    time(type == at::kByte    ? "adamw_8bit"
         : type == at::kFloat ? "adamw fp32"
                              : "adamw bf16",
         bytes * static_cast<double>(n),
         [&] { optim::adamw_step({1e-4, 0.9, 0.999, 1e-8, 0.1}, span, one, zero, one); });
  }
}

}  // namespace

void time_kernels() {
  const std::int64_t rows = 16384, width = 1536, ff = 8960;
  const auto type = at::kBFloat16;
  const auto x = draw({rows, width}, type), r = draw({rows, width}, type), w = draw({width}, type);
  auto [y, rstd] = ops::rms_norm(x, w, 1e-6);
  auto gw = at::zeros({width}, at::TensorOptions(at::kCUDA));
  const double row_bytes = static_cast<double>(rows * width * 2);
  time("rms_norm", 2 * row_bytes, [&] { ops::rms_norm(x, w, 1e-6); });
  time("add_rms_norm", 4 * row_bytes, [&] { ops::add_rms_norm(x, r, w, 1e-6); });
  time("rms_norm_backward", 4 * row_bytes,
       [&, s = rstd] { ops::rms_norm_backward(r, x, w, s, r, gw); });
  const auto gate_up = draw({rows, 2 * ff}, type), g = draw({rows, ff}, type);
  const double ff_bytes = static_cast<double>(rows * ff * 2);
  time("swiglu", 3 * ff_bytes, [&] { ops::swiglu(gate_up); });
  time("swiglu_backward", 6 * ff_bytes,
       [&, act = std::make_shared<Tensor>(g.clone())] { ops::swiglu_backward_(*act, gate_up); });
  time("dropout", 2 * ff_bytes, [&] { ops::drop_out(g, {.05, 7}); });
  const auto bytes = at::zeros({ops::nf4_layout(ff * width, true).bytes},
                               at::TensorOptions(at::kCUDA).dtype(at::kByte));
  const auto out = draw({ff, width}, type);
  time("nf4 to bf16", static_cast<double>(ff * width) * 2.5,
       [&, m = ops::nf4_over(bytes, ff, width, true)] { ops::dequantize(m, out); });
  const auto codes =
      at::zeros({ops::int8_layout(ff, width).bytes}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  time("int8 to bf16", static_cast<double>(ff * width) * 3,
       [&, m = ops::int8_over(codes, ff, width)] { ops::dequantize(m, out); });
  auto logits = draw({2048, 151936}, type);
  const auto targets = at::randint(151936, {2048}, at::TensorOptions(at::kCUDA).dtype(at::kInt));
  const double scale = 1e-3;
  time("cross_entropy and gradient", 3.0 * 2048 * 151936 * 2,
       [&] { ops::cross_entropy_(logits, targets, &scale); });
  const auto table = train::host_tensor(32768 * 3584, type, true).view({32768, 3584});
  const auto tokens = at::randint(32768, {2048}, at::TensorOptions(at::kCUDA).dtype(at::kInt));
  time("embedding on the host, 2048 tokens", 2048.0 * 3584 * 2,
       [&] { ops::embedding(table, tokens); });
  time_adamw();
}

}  // namespace mgpu::gpu_test
