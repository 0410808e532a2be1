#include <ATen/TensorOperators.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <string>
#include <utility>

#include "runtime/kernels/moment.hpp"
#include "runtime/kernels/on_gpu.hpp"
#include "runtime/optim/adamw_step.hpp"
#include "runtime/optim/moment_vectors.hpp"
#include "tests/gpu/kernel_checks.hpp"

namespace mgpu::gpu_test {
namespace {

using at::Tensor;

void check_step(std::int64_t n, at::ScalarType grad, at::ScalarType moment,
                at::ScalarType weights) {
  const auto w = at::randn({n}), g = at::randn({n}).to(grad), m = at::randn({n}).to(moment);
  const auto v = at::randn({n}).abs().to(moment);
  const auto gpu = [](const Tensor& x) { return x.clone().to(at::kCUDA); };
  auto gw = gpu(w), gm = gpu(m), gv = gpu(v);
  auto value = gw.to(weights);
  const auto one = [](double x) { return at::zeros({}, at::TensorOptions(at::kCUDA)).add_(x); };
  ops::on_gpu::adamw_({1e-2, 0.9, 0.999, 1e-8, 0.1}, gw, value, gpu(g), gm, gv, one(0.5), one(0),
                      one(3));
  const auto g32 = g.to(at::kFloat) * 0.5;
  const auto m2 = m.to(at::kFloat) * 0.9 + g32 * 0.1;
  const auto v2 = v.to(at::kFloat) * 0.999 + g32 * g32 * 0.001;
  const double c1 = 1 - 0.9 * 0.9 * 0.9, c2 = 1 - 0.999 * 0.999 * 0.999;
  const auto wanted = w * (1 - 1e-2 * 0.1) - m2 / c1 / ((v2 / c2).sqrt() + 1e-8) * 1e-2;
  compare("adamw master", gw, wanted, 1e-5);
  compare(std::string("adamw value ") + name_of(weights), value, wanted,
          weights == at::kHalf ? 5e-4 : 4e-3);
  // In bf16 a few elements are rounded to the other side, because sums differ in the last bit.
  const bool rounded = moment == at::kBFloat16;
  const auto bits = ops::random_bits(w, g.to(at::kFloat), at::full({}, 3.0));
  const auto high = at::bitwise_right_shift(bits, 16);
  compare("adamw first", gm, rounded ? ops::round_at_random(m2, high) : m2, rounded ? 1e-3 : 1e-6);
  compare("adamw second", gv, rounded ? ops::round_at_random(v2, bits) : v2, rounded ? 1e-3 : 1e-6);
}

ops::Moment to_gpu(const ops::Moment& m) {
  return {m.values.to(at::kCUDA), m.scales.to(at::kCUDA), m.table.to(at::kCUDA), m.lead};
}

ops::Moment coded(const Tensor& values, const Tensor& table, std::int64_t lead) {
  const auto scales = ops::block_scales(values, lead);
  ops::Moment moment{at::zeros({values.numel()}, at::kByte), at::zeros_like(scales), table, lead};
  ops::encode_(moment, values, scales);
  return moment;
}

// A value halfway between two levels may become either code; few do. A skipped step must change
// nothing. fp32 weights are their own master.
void check_step_8bit(std::int64_t n, std::int64_t lead, at::ScalarType grad,
                     at::ScalarType weights) {
  const bool with_value = weights != at::kFloat;
  const auto g = at::randn({n}).to(grad);
  const optim::Span cpu{at::randn({n}),
                        with_value ? at::zeros({n}, weights) : Tensor(),
                        g,
                        coded(at::randn({n}), optim::first_moment_table(at::kCPU), lead),
                        coded(at::randn({n}).square(), optim::second_moment_table(at::kCPU), lead),
                        true};
  const optim::Span gpu{cpu.master.to(at::kCUDA), with_value ? cpu.value.to(at::kCUDA) : Tensor(),
                        g.to(at::kCUDA),          to_gpu(cpu.first),
                        to_gpu(cpu.second),       true};
  const auto name = " " + std::to_string(n) + " behind " + std::to_string(lead);
  for (const double skip : {1.0, 0.0}) {
    const auto step = [&](const optim::Span& span) {
      const auto one = [&](double x) { return at::full({}, x, span.master.options()); };
      optim::adamw_step({1e-2, 0.9, 0.999, 1e-8, 0.1}, span, one(0.5), one(skip), one(3));
    };
    step(cpu);
    step(gpu);
    const std::string what = "adamw_8bit" + name + (skip != 0 ? " skipped " : " ");
    const double exact = skip != 0 ? 0 : 1;
    compare(what + "master", gpu.master, cpu.master, exact * 1e-5);
    // Masters that differ by less may be rounded to different neighbours.
    if (with_value && skip == 0) compare(what + "value", gpu.value, cpu.value, 3e-4);
    for (const auto& [moment, wanted] :
         {std::pair{&gpu.first, &cpu.first}, std::pair{&gpu.second, &cpu.second}}) {
      compare(what + "scales", moment->scales, wanted->scales, exact * 1e-6);
      compare(what + "moment", ops::decode(*moment), ops::decode(*wanted), exact * 1e-3);
    }
  }
}

}  // namespace

void check_adamw(at::ScalarType weights) {
  check_step(100003, at::kFloat, at::kFloat, weights);
  check_step(4096, at::kFloat, at::kBFloat16, weights);
  check_step(4096, at::kBFloat16, at::kBFloat16, weights);
}

void check_adamw_8bit() {
  for (const auto grad : {at::kFloat, at::kBFloat16})
    for (const auto weights : {at::kBFloat16, at::kHalf, at::kFloat})
      for (const auto& [n, lead] :
           {std::pair{100003, 0}, std::pair{1 << 20, 64}, std::pair{5000, 100}, std::pair{7, 255}})
        check_step_8bit(n, lead, grad, weights);
}

}  // namespace mgpu::gpu_test
