// Runs every algorithm that `gemm_choice: timed` could choose for the products of a model, and
// prints which would be chosen. Exits with status 1 if a result differs from PyTorch's in fp32 by
// more than rounding, leaves an element unwritten, or has other bits the second time.
//   gemm_check [0.5B|1.5B|3B|7B|8B] [tokens=8192]
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "runtime/kernels/cublas_lt.hpp"
#include "runtime/model/transformer.hpp"
#include "runtime/train/device.hpp"
#include "tests/gpu/shapes.hpp"

namespace {

using namespace mgpu;
using at::Tensor;

constexpr int kCandidates = 8;
bool good = true;

Tensor draw(std::int64_t rows, std::int64_t columns, at::ScalarType type = at::kBFloat16) {
  return at::randn({rows, columns}, at::TensorOptions(at::kCUDA).dtype(type));
}

// out, filled with what must be replaced or, if the product is added, with numbers.
Tensor fresh_out(const ops::GemmOperands& o) {
  if (o.beta != 0) return o.out.clone();
  return at::full(o.out.sizes(), std::numeric_limits<double>::quiet_NaN(), o.out.options());
}

Tensor reference(const ops::GemmOperands& o) {
  Tensor wanted = at::mm(o.a.to(at::kFloat), o.b.to(at::kFloat));
  if (o.bias.defined()) wanted.add_(o.bias.to(at::kFloat));
  if (o.beta != 0) wanted.add_(o.out.to(at::kFloat));
  return wanted;
}

void check(ops::GemmLibrary& library, const std::string& name, const ops::GemmOperands& o) {
  const auto gemm = ops::gemm_of(o);
  if (!gemm) {
    printf("BAD   %s: not described\n", name.c_str());
    good = false;
    return;
  }
  const Tensor wanted = reference(o);
  const double limit = o.out.scalar_type() == at::kFloat ? 1e-5 : 8e-3;
  double worst = 0;
  bool same = true;
  const auto algorithms = library.candidates(*gemm, kCandidates);
  for (const auto& algorithm : algorithms) {
    Tensor results[2];
    for (auto& result : results) {
      auto own = o;
      own.out = result = fresh_out(o);
      library.run(*gemm, algorithm, own);
    }
    same = same && at::equal(results[0], results[1]);
    const auto difference = results[0].to(at::kFloat).sub_(wanted);
    const double error = difference.norm().item<float>() / wanted.norm().item<float>();
    worst = error <= worst ? worst : error;  // NaN is the worst
  }
  const bool fine = !algorithms.empty() && same && worst <= limit;
  good = good && fine;
  const auto chosen = ops::fastest_algorithm(library, *gemm);
  const auto number = chosen ? std::ranges::find(algorithms, *chosen) - algorithms.begin() + 1 : 0;
  const auto trial = library.trial(*gemm);
  const double before = trial->seconds(nullptr).value();
  const double after = chosen ? trial->seconds(&*chosen).value() : before;
  printf(
      "%-5s %-34s %zu algorithms, error %.1e; PyTorch %.3f ms, %.0f TFLOP/s; number %td %.3f ms "
      "(%+.1f %%)%s\n",
      fine ? "ok" : "BAD", name.c_str(), algorithms.size(), worst, before * 1e3,
      gemm->flops() / before / 1e12, number, after * 1e3, 100 * (after / before - 1),
      same ? "" : ", DIFFERENT BITS");
}

void check_layer(ops::GemmLibrary& library, const std::string& name, std::int64_t tokens,
                 std::int64_t in, std::int64_t out) {
  const auto x = draw(tokens, in), w = draw(out, in), gy = draw(tokens, out);
  const auto y = draw(tokens, out), gx = draw(tokens, in), gw = draw(out, in, at::kFloat);
  check(library, name, {.out = y, .a = x, .b = w.t()});
  check(library, name + " with bias",
        {.out = y, .a = x, .b = w.t(), .bias = draw(1, out).select(0, 0)});
  check(library, name + " added to adapters", {.out = y, .a = x, .b = w.t(), .beta = 1});
  check(library, name + ", input's gradient", {.out = gx, .a = gy, .b = w});
  check(library, name + ", weight's gradient", {.out = gw, .a = gy.t(), .b = x});
  check(library, name + ", weight's gradient added", {.out = gw, .a = gy.t(), .b = x, .beta = 1});
}

}  // namespace

int main(int argc, char** argv) {
  std::string model = "1.5B";
  std::int64_t tokens = 8192;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("tokens="))
      tokens = std::stol(word.substr(word.find('=') + 1));
    else
      model = word;
  }
  if (train::visible_gpus() == 0) {
    fprintf(stderr, "gemm_check: there is no GPU\n");
    return 2;
  }
  const auto device = train::take_device(0, true);
  at::globalContext().setAllowTF32CuBLAS(false);
  const auto library = ops::open_cublas_lt(device);
  if (!library) {
    fprintf(stderr, "gemm_check: cuBLASLt is missing\n");
    return 1;
  }
  printf("%s on %s, %s, %ld tokens\n", library->version().c_str(), library->device().c_str(),
         model.c_str(), static_cast<long>(tokens));
  const auto config = bench::shape(model);
  const auto q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  check_layer(*library, "qkv", tokens, config.hidden_size, q + 2 * kv);
  check_layer(*library, "o", tokens, q, config.hidden_size);
  check_layer(*library, "gate, up", tokens, config.hidden_size, 2 * config.intermediate_size);
  check_layer(*library, "down", tokens, config.intermediate_size, config.hidden_size);
  check_layer(*library, "head", std::min<std::int64_t>(tokens, model::kHeadRows),
              config.hidden_size, config.vocab_size);
  printf(good ? "all algorithms agree\n" : "SOME ALGORITHMS DIFFER\n");
  return good ? 0 : 1;
}
