// Compares every kernel on a GPU with the ATen composition of the same operation on the CPU in
// fp32, and times those that are limited by memory bandwidth. Exits with status 1 if any differs.
//   kernels_check [check] [PART ...]
// With the word "check" nothing is timed, nor if only some parts are named.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "runtime/kernels/on_gpu.hpp"
#include "runtime/kernels/ops.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/host_tensor.hpp"
#include "tests/gpu/kernel_checks.hpp"
#include "tests/gpu/kernel_times.hpp"

namespace mgpu::gpu_test {
namespace {
bool good = true;
}  // namespace

void compare(const std::string& what, const at::Tensor& gpu, const at::Tensor& wanted,
             double limit) {
  const auto got = gpu.to(at::kCPU).to(at::kFloat);
  const double error = got.sub(wanted.to(at::kFloat)).norm().item<float>() /
                       std::max(1e-12F, wanted.to(at::kFloat).norm().item<float>());
  const bool fine = error <= limit;
  good = good && fine;
  printf("%-5s %-52s error %.2e (limit %.0e)\n", fine ? "ok" : "BAD", what.c_str(), error, limit);
}

at::Tensor reference(const at::Tensor& x) {
  return x.to(at::kCPU).to(at::kFloat);
}

const char* name_of(at::ScalarType type) {
  return type == at::kFloat ? "fp32" : type == at::kHalf ? "fp16" : "bf16";
}

void require(const std::string& what, bool holds) {
  good = good && holds;
  printf("%-5s %s\n", holds ? "ok" : "BAD", what.c_str());
}

}  // namespace mgpu::gpu_test

namespace {

using namespace mgpu;
using at::Tensor;
using gpu_test::compare, gpu_test::draw, gpu_test::good, gpu_test::name_of, gpu_test::reference;

// Types of weights, with the relative error of a rounded result.
constexpr std::pair<at::ScalarType, double> kTypes[] = {
    {at::kFloat, 2e-6}, {at::kBFloat16, 8e-3}, {at::kHalf, 2e-3}};

void check_norms(std::int64_t rows, std::int64_t width, at::ScalarType type, double limit) {
  const auto name =
      " [" + std::to_string(rows) + ", " + std::to_string(width) + "] " + name_of(type);
  const auto x = draw({rows, width}, type), r = draw({rows, width}, type);
  const auto w = draw({width}, type), g = draw({rows, width}, type);
  auto [y, rstd] = ops::rms_norm(x, w, 1e-6);
  auto [wy, wrstd] = ops::rms_norm(reference(x), reference(w), 1e-6);
  compare("rms_norm" + name, y, wy, limit);
  compare("rms_norm rstd" + name, rstd, wrstd, 1e-5);
  auto [sum, ay, arstd] = ops::add_rms_norm(x, r, w, 1e-6);
  auto [wsum, way, warstd] = ops::add_rms_norm(reference(x), reference(r), reference(w), 1e-6);
  compare("add_rms_norm sum" + name, sum, wsum, limit);
  compare("add_rms_norm" + name, ay, way, limit);
  auto gw = at::zeros({width}, at::TensorOptions(at::kCUDA)).add_(1);
  auto wgw = at::zeros({width}).add_(1);
  compare(
      "rms_norm_backward" + name, ops::rms_norm_backward(g, x, w, rstd, r, gw),
      ops::rms_norm_backward(reference(g), reference(x), reference(w), wrstd, reference(r), wgw),
      limit);
  compare("rms_norm_backward gw" + name, gw, wgw, 1e-4);
  auto gw16 = at::ones({width}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  ops::rms_norm_backward(g, x, w, rstd, r, gw16);
  compare("rms_norm_backward gw in bf16" + name, gw16, wgw, 8e-3);
}

// Rows of a matrix in pinned memory must arrive bit for bit. Without pinned memory they are copied.
void check_look_up(std::int64_t rows, std::int64_t width, at::ScalarType type) {
  const auto table = train::host_tensor(1000 * width, type, true).view({1000, width});
  table.copy_(draw({1000, width}, type));
  const auto tokens = at::randint(1000, {rows}, at::TensorOptions(at::kCUDA).dtype(at::kInt));
  const auto wanted = table.index_select(0, tokens.to(at::kCPU));
  const bool whole = width * static_cast<std::int64_t>(table.element_size()) % 16 == 0;
  gpu_test::require("the GPU reads pinned rows itself",
                    ops::on_gpu::can_look_up(table, tokens) == whole &&
                        !ops::on_gpu::can_look_up(table.clone(), tokens));
  compare(std::string("embedding on the host ") + name_of(type), ops::embedding(table, tokens),
          wanted, 0);
  compare("embedding in pageable memory", ops::embedding(table.clone(), tokens), wanted, 0);
}

void check_swiglu(std::int64_t rows, std::int64_t width, at::ScalarType type, double limit) {
  const auto x = draw({rows, 2 * width}, type), g = draw({rows, width}, type);
  compare("swiglu", ops::swiglu(x), ops::swiglu(reference(x)), limit);
  Tensor act = g.clone();
  Tensor wanted_act = reference(g);
  const auto wanted = ops::swiglu_backward_(wanted_act, reference(x));
  compare("swiglu_backward", ops::swiglu_backward_(act, x), wanted, limit);
  compare("swiglu_backward's output of swiglu", act, wanted_act, limit);
}

// The places that are dropped follow from ones; the rate and the values from the probability.
void check_dropout(at::IntArrayRef shape, double probability, at::ScalarType type, double limit) {
  const auto name = ", p " + std::to_string(probability).substr(0, 4);
  const ops::Dropout dropout{probability, 1234};
  const auto x = draw(shape, type);
  const auto kept = reference(ops::drop_out(at::ones_like(x), dropout)).ne(0).to(at::kFloat);
  // The probability is rounded to a multiple of 2^-16.
  const auto wanted = reference(x) * kept / (1 - std::round(probability * 65536) / 65536);
  const auto y = ops::drop_out(x, dropout);
  compare("dropout" + name, y, wanted, limit);
  Tensor in_place = x.clone();
  ops::drop_out_(in_place, dropout);
  compare("dropout in place" + name, in_place, reference(y), 0);
  const double spread = std::sqrt(probability * (1 - probability) / static_cast<double>(x.numel()));
  const double rate = 1 - kept.mean().item<float>();
  const auto other = reference(ops::drop_out(at::ones_like(x), {probability, 1235}));
  const double both = other.ne(0).to(at::kFloat).mul(kept).mean().item<float>();
  const bool fine = std::abs(rate - probability) < 5 * spread + 1e-5 &&
                    std::abs(both - (1 - probability) * (1 - probability)) < 10 * spread + 1e-5;
  good = good && fine;
  printf("%-5s dropout%s drops %.5f; two seeds both keep %.5f\n", fine ? "ok" : "BAD", name.c_str(),
         rate, both);
}

void check_rotate(std::int64_t rows, std::int64_t heads, std::int64_t dim, at::ScalarType type,
                  double limit) {
  auto x = draw({rows, (heads + 4) * dim}, type);
  const auto angles = at::randn({64, dim / 2});
  const auto positions = at::randint(64, {rows}, at::kInt);
  auto wanted = reference(x);
  ops::rotate_(x, heads, dim, angles.cos().to(at::kCUDA), angles.sin().to(at::kCUDA),
               positions.to(at::kCUDA), false);
  ops::rotate_(wanted, heads, dim, angles.cos(), angles.sin(), positions, false);
  compare("rotate, head_dim " + std::to_string(dim), x, wanted, limit);
  ops::rotate_(x, heads, dim, angles.cos().to(at::kCUDA), angles.sin().to(at::kCUDA),
               positions.to(at::kCUDA), true);
  ops::rotate_(wanted, heads, dim, angles.cos(), angles.sin(), positions, true);
  compare("rotate back", x, wanted, limit);
}

void check_head_norms(std::int64_t rows, const ops::HeadShape& shape, at::ScalarType type,
                      double limit) {
  const auto name = ", heads of " + std::to_string(shape.head_dim);
  const auto width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  const auto angles = at::randn({64, shape.head_dim / 2});
  const auto positions = at::randint(64, {rows}, at::kInt);
  const ops::Rotation on_cpu{angles.cos(), angles.sin(), positions};
  const ops::Rotation on_gpu{on_cpu.cos.to(at::kCUDA), on_cpu.sin.to(at::kCUDA),
                             positions.to(at::kCUDA)};
  const ops::HeadNorms norms{shape, draw({shape.head_dim}, type), draw({shape.head_dim}, type),
                             1e-6};
  const ops::HeadNorms wanted_norms{shape, reference(norms.q), reference(norms.k), 1e-6};
  Tensor x = draw({rows, width}, type);
  Tensor wanted = reference(x);
  ops::HeadNormsSaved saved;
  ops::HeadNormsSaved wanted_saved;
  ops::norm_heads_(x, norms, on_gpu, &saved);
  ops::norm_heads_(wanted, wanted_norms, on_cpu, &wanted_saved);
  compare("norm_heads" + name, x, wanted, limit);
  compare("norm_heads before" + name, saved.before, wanted_saved.before, 0);
  compare("norm_heads rstd" + name, saved.rstd, wanted_saved.rstd, 1e-5);
  Tensor g = draw({rows, width}, type);
  Tensor wanted_g = reference(g);
  const auto ones = at::zeros({shape.head_dim}, at::TensorOptions(at::kCUDA)).add_(1);
  const Tensor gq = ones.clone(), gk = ones.clone();
  const Tensor wanted_gq = reference(ones), wanted_gk = reference(ones);
  ops::norm_heads_backward_(g, norms, on_gpu, saved, gq, gk);
  ops::norm_heads_backward_(wanted_g, wanted_norms, on_cpu, wanted_saved, wanted_gq, wanted_gk);
  compare("norm_heads_backward" + name, g, wanted_g, limit);
  compare("norm_heads_backward gq" + name, gq, wanted_gq, type == at::kFloat ? 1e-4 : 4e-3);
  compare("norm_heads_backward gk" + name, gk, wanted_gk, type == at::kFloat ? 1e-4 : 4e-3);
}

void check_cross_entropy(std::int64_t rows, std::int64_t vocab, at::ScalarType type, double limit) {
  auto x = draw({rows, vocab}, type).mul_(3);
  auto targets = at::randint(vocab, {rows}, at::kInt);
  targets[rows / 2] = -100;
  auto wanted_x = reference(x);
  const double scale = 0.125;
  const auto name = " [" + std::to_string(rows) + ", " + std::to_string(vocab) + "]";
  const auto got = ops::cross_entropy_(x, targets.to(at::kCUDA), &scale);
  const auto wanted = ops::cross_entropy_(wanted_x, targets, &scale);
  compare("cross_entropy loss" + name, got.loss, wanted.loss, 1e-5);
  compare("cross_entropy entropy" + name, got.entropy, wanted.entropy, 1e-4);
  compare("cross_entropy correct" + name, got.correct, wanted.correct, 1e-6);
  compare("cross_entropy gradient" + name, x, wanted_x, limit);
}

// The head with fp32 logits: its weight is transposed, as in the forward pass.
void check_product_in_fp32(std::int64_t rows, std::int64_t width, std::int64_t vocab,
                           at::ScalarType type) {
  const auto h = draw({rows, width}, type), w = draw({vocab, width}, type);
  compare(std::string("product in fp32 of ") + name_of(type), ops::product_in_fp32(h, w.t()),
          at::mm(reference(h), reference(w).t()), 1e-5);
}

// Gradients of weights in fp16 are summed in fp32: a sum beyond the range of fp16 stays finite.
void check_weight_gradient(at::ScalarType type) {
  const auto gy = draw({64, 96}, type).mul_(1000), x = draw({64, 128}, type).mul_(100);
  const auto got = at::zeros({96, 128}, at::TensorOptions(at::kCUDA));
  const auto wanted = at::zeros({96, 128});
  ops::add_weight_gradient(gy, x, got, 0.5);
  ops::add_weight_gradient(reference(gy), reference(x), wanted, 0.5);
  compare(std::string("gradient of a weight in ") + name_of(type), got, wanted, 1e-5);
}

// What is checked for each type; fp32 has its own limits, or is left out.
struct Part {
  const char* name;
  bool in_fp32;
  void (*check)(at::ScalarType type, double limit);
};

constexpr Part kParts[] = {
    {"norms", true,
     [](at::ScalarType type, double limit) {
       for (const auto& [rows, width] :
            {std::pair{1, 128}, std::pair{777, 896}, std::pair{300, 1536}, std::pair{65, 3584},
             std::pair{9, 8192}})
         check_norms(rows, width, type, limit);
     }},
    {"head_norms", true,
     [](at::ScalarType type, double limit) {
       check_head_norms(77, {16, 8, 128}, type, limit);
       check_head_norms(1, {1, 1, 16}, type, limit);
       check_head_norms(1001, {5, 1, 64}, type, limit);
       check_head_norms(33, {2, 2, 256}, type, limit);
     }},
    {"elements", true,
     [](at::ScalarType type, double limit) {
       check_swiglu(33, 8960, type, limit);
       check_rotate(77, 14, 64, type, limit);
       check_rotate(5, 3, 128, type, limit);
       check_dropout({1031, 1536}, .05, type, limit);
       check_dropout({3, 8}, .5, type, limit);
       check_dropout({257, 18944}, .9, type, limit);
       for (const std::int64_t width : {8, 100, 3584}) check_look_up(1031, width, type);
     }},
    {"cross_entropy", true,
     [](at::ScalarType type, double limit) {
       check_cross_entropy(17, 151936, type, limit);
       check_cross_entropy(9, 1003, type, limit);
     }},
    {"paged", true, gpu_test::check_paged_attention},
    {"sampling", true, gpu_test::check_sampling},
    {"frequencies", true,
     [](at::ScalarType type, double) {
       if (type == at::kFloat) gpu_test::check_frequencies();  // of tokens, which have no type
     }},
    {"attention", true, [](at::ScalarType type, double) { gpu_test::check_attentions(type); }},
    {"formats", true, [](at::ScalarType type, double) { gpu_test::check_formats(type); }},
    {"products", false,
     [](at::ScalarType type, double) {
       check_product_in_fp32(33, 896, 5000, type);
       check_product_in_fp32(1, 896, 1003, type);
       check_weight_gradient(type);
     }},
    {"adamw", false, [](at::ScalarType type, double) { gpu_test::check_adamw(type); }},
    {"adamw_8bit", false,
     [](at::ScalarType type, double) {
       if (type == at::kHalf) gpu_test::check_adamw_8bit();  // for all types
     }},
    {"low_rank_products", false, gpu_test::check_low_rank_products},
    {"low_rank", false, gpu_test::check_low_rank},
};

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);  // a kernel that fails ends the program
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (train::visible_gpus() == 0) {
    fprintf(stderr, "kernels_check: no GPU is visible\n");
    return 1;
  }
  train::take_device(0, true);
  at::manual_seed(1);
  bool all = true;
  for (const auto& word : words) {
    if (word == "check") continue;
    all = false;
    const auto part = std::ranges::find(kParts, word, &Part::name);
    if (part != std::end(kParts)) continue;
    fprintf(stderr, "kernels_check: no part \"%s\"\n", word.c_str());
    return 2;
  }
  for (const auto& part : kParts) {
    if (!all && std::ranges::find(words, part.name) == words.end()) continue;
    for (const auto& [type, limit] : kTypes)
      if (type != at::kFloat || part.in_fp32) part.check(type, limit);
  }
  if (words.empty()) gpu_test::time_kernels();
  printf("%s\n", good ? "all kernels agree" : "some kernels differ");
  return good ? 0 : 1;
}
