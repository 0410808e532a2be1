#include "runtime/kernels/low_rank.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <string>
#include <vector>

#include "runtime/kernels/low_rank_on_gpu.hpp"
#include "runtime/kernels/ops.hpp"
#include "tests/gpu/kernel_checks.hpp"
#include "tests/gpu/kernel_times.hpp"

namespace mgpu::gpu_test {
namespace {

using at::Tensor;
using Term = ops::LowRank::Term;

struct Outputs {
  std::int64_t begin, size, rank;  // rank 0: no adapter
};

// Values as small as those of trained adapters, so that all parts matter about equally.
ops::LowRank draw_terms(std::int64_t rows, const std::vector<Outputs>& outputs,
                        at::ScalarType type) {
  ops::LowRank added;
  added.scale = 2;
  std::int64_t column = 0;
  for (const auto& part : outputs) {
    if (part.rank == 0) continue;
    added.terms.push_back({draw({part.size, part.rank}, type).mul_(.1), part.begin, column});
    column += part.rank;
  }
  added.low = draw({rows, column}, type);
  return added;
}

ops::LowRank reference(const ops::LowRank& added) {
  ops::LowRank there{gpu_test::reference(added.low), added.scale, {}};
  for (const auto& term : added.terms)
    there.terms.push_back({gpu_test::reference(term.b), term.begin, term.column});
  return there;
}

// Memory of the size of a coming result, so that what a kernel does not write is NaN.
void poison(at::IntArrayRef shape, at::ScalarType type) {
  at::full(shape, std::numeric_limits<double>::quiet_NaN(),
           at::TensorOptions(at::kCUDA).dtype(type));
}

void check_products(std::int64_t rows, std::int64_t depth, std::int64_t ranks, bool with_bias,
                    at::ScalarType type, double limit) {
  const auto name = " [" + std::to_string(rows) + ", " + std::to_string(depth) + "] x " +
                    std::to_string(ranks) + " " + name_of(type);
  const auto x = draw({rows, depth}, type), w = draw({256, depth}, type).mul_(.02);
  const auto a = draw({ranks, depth}, type).mul_(.02);
  const auto bias = with_bias ? draw({256}, type) : Tensor();
  require("low is our kernel's" + name, ops::on_gpu::can_low_rank_product(x, a));
  poison({rows, ranks}, type);
  const auto [y, low] = ops::product_and_low(x, w, bias, a);
  const auto wanted = at::mm(gpu_test::reference(x), gpu_test::reference(w).t());
  compare("product beside low" + name, y,
          with_bias ? wanted.add(gpu_test::reference(bias)) : wanted, limit);
  compare("low" + name, low, at::mm(gpu_test::reference(x), gpu_test::reference(a).t()), limit);
  bool same = true;
  for (int i = 0; i < 20; ++i) {
    const auto again = ops::product_and_low(x, w, bias, a);
    same = same && at::equal(again.first, y) && at::equal(again.second, low);
  }
  require("products of the same have the same bits" + name, same);
}

void check_add(std::int64_t rows, std::int64_t width, const std::vector<Outputs>& outputs,
               at::ScalarType type, double limit) {
  const auto y = draw({rows, width}, type);
  const auto added = draw_terms(rows, outputs, type);
  const auto name = " [" + std::to_string(rows) + ", " + std::to_string(width) + "]";
  require("add_low_rank is our kernel" + name, ops::on_gpu::can_add_low_rank(y, added, width));
  auto wanted = gpu_test::reference(y), got = y.clone();
  ops::add_low_rank_(wanted, reference(added));
  ops::add_low_rank_(got, added);
  compare("add_low_rank" + name, got, wanted, limit);
}

void check_swiglu(std::int64_t rows, std::int64_t width, std::int64_t gate_rank,
                  std::int64_t up_rank, at::ScalarType type, double limit) {
  const auto gate_up = draw({rows, 2 * width}, type);
  const auto added = draw_terms(rows, {{0, width, gate_rank}, {width, width, up_rank}}, type);
  const auto name = " [" + std::to_string(rows) + ", " + std::to_string(width) + "] ranks " +
                    std::to_string(gate_rank) + ", " + std::to_string(up_rank);
  require("swiglu with terms is our kernel" + name, ops::on_gpu::can_swiglu(gate_up, added));
  poison({rows, width}, type);
  const auto got = ops::swiglu(gate_up, added);
  compare("swiglu with terms" + name, got,
          ops::swiglu(gpu_test::reference(gate_up), reference(added)), limit);
  require("swiglu with terms has the same bits again", at::equal(got, ops::swiglu(gate_up, added)));
}

void check_norm(std::int64_t rows, std::int64_t width, std::int64_t rank, at::ScalarType type,
                double limit) {
  const auto x = draw({rows, width}, type), residual = draw({rows, width}, type);
  const auto w = draw({width}, type);
  const auto added = draw_terms(rows, {{0, width, rank}}, type);
  const auto name =
      " [" + std::to_string(rows) + ", " + std::to_string(width) + "] rank " + std::to_string(rank);
  require("add_rms_norm with a term is our kernel" + name,
          ops::on_gpu::can_norm(x, added, residual, w));
  poison({rows, width}, type);
  const auto [sum, y] = ops::add_rms_norm(x, added, residual, w, 1e-6);
  const auto [wanted_sum, wanted] =
      ops::add_rms_norm(gpu_test::reference(x), reference(added), gpu_test::reference(residual),
                        gpu_test::reference(w), 1e-6);
  compare("add_rms_norm with a term, sum" + name, sum, wanted_sum, limit);
  compare("add_rms_norm with a term" + name, y, wanted, limit);
}

void check_rotate_into_pages(std::int64_t rows, const ops::HeadShape& shape, std::int64_t q_rank,
                             std::int64_t k_rank, std::int64_t v_rank, at::ScalarType type,
                             double limit) {
  const auto dim = shape.head_dim, q = shape.heads * dim, kv = shape.kv_heads * dim;
  auto qkv = draw({rows, q + 2 * kv}, type);
  auto wanted_qkv = gpu_test::reference(qkv);
  auto added = draw_terms(rows, {{0, q, q_rank}, {q, kv, k_rank}, {q + kv, kv, v_rank}}, type);
  if (added.terms.empty()) added.low = Tensor();
  const auto angles = at::randn({64, dim / 2});
  const ops::Rotation here{angles.cos(), angles.sin(), at::randint(64, {rows}, at::kInt)};
  const ops::Rotation there{here.cos.to(at::kCUDA), here.sin.to(at::kCUDA),
                            here.positions.to(at::kCUDA)};
  const auto pages = rows / ops::kPageTokens + 3;
  const auto slots = at::randperm(pages * ops::kPageTokens, at::kLong).narrow(0, 0, rows);
  const auto empty = [&](at::TensorOptions options) {
    return at::zeros({pages, ops::kPageTokens, shape.kv_heads, dim}, options);
  };
  const ops::Pages got{empty(qkv.options()), empty(qkv.options())};
  const ops::Pages wanted{empty(wanted_qkv.options()), empty(wanted_qkv.options())};
  const auto name = " [" + std::to_string(rows) + "], " + std::to_string(shape.heads) + "/" +
                    std::to_string(shape.kv_heads) + " x " + std::to_string(dim) + ", ranks " +
                    std::to_string(q_rank) + " " + std::to_string(k_rank) + " " +
                    std::to_string(v_rank);
  require("rotate_into_pages is our kernel" + name,
          ops::on_gpu::can_rotate_into_pages(qkv, added, shape, got));
  ops::rotate_into_pages(qkv, added, shape, there, slots.to(at::kCUDA), got);
  ops::rotate_into_pages(wanted_qkv, added.low.defined() ? reference(added) : ops::LowRank{}, shape,
                         here, slots, wanted);
  compare("rotate_into_pages q" + name, qkv.narrow(1, 0, q), wanted_qkv.narrow(1, 0, q), limit);
  compare("rotate_into_pages k" + name, got.keys, wanted.keys, limit);
  compare("rotate_into_pages v" + name, got.values, wanted.values, limit);
}

}  // namespace

void check_low_rank_products(at::ScalarType type, double limit) {
  for (const std::int64_t rows : {1, 7, 128, 301}) {
    check_products(rows, 896, 16, false, type, limit);
    check_products(rows, 1536, 48, true, type, limit);
    check_products(rows, 8960, 16, false, type, limit);
    check_products(rows, 18944, 32, false, type, limit);
  }
}

void check_low_rank(at::ScalarType type, double limit) {
  for (const std::int64_t rows : {1, 7, 128, 301}) {
    check_add(rows, 2048, {{0, 1536, 16}, {1792, 256, 16}}, type, limit);
    check_add(rows, 96, {{0, 32, 16}, {32, 32, 64}, {64, 32, 48}}, type, limit);
    check_swiglu(rows, 8960, 16, 16, type, 2 * limit);
    check_swiglu(rows, 4864, 32, 0, type, 2 * limit);
    check_swiglu(rows, 96, 0, 64, type, 2 * limit);
    check_norm(rows, 1536, 16, type, limit);
    check_norm(rows, 896, 32, type, limit);
    check_norm(rows, 4096, 64, type, limit);
    check_norm(rows, 32, 16, type, limit);
    check_rotate_into_pages(rows, {12, 2, 128}, 16, 16, 16, type, limit);
    check_rotate_into_pages(rows, {14, 2, 64}, 32, 0, 16, type, limit);
    check_rotate_into_pages(rows, {3, 1, 128}, 0, 0, 0, type, limit);
  }
}

}  // namespace mgpu::gpu_test
