#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>

#include "runtime/kernels/paged.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace mgpu;
using at::Tensor;

constexpr ops::HeadShape kShape{.heads = 4, .kv_heads = 2, .head_dim = 24};

Tensor numbers(const std::vector<std::int32_t>& values) {
  return at::tensor(values, at::kInt);
}

double largest_difference(const Tensor& a, const Tensor& b) {
  return (a.to(at::kFloat) - b.to(at::kFloat)).abs().max().item<double>();
}

// Three sequences of 1, 16 and 37 tokens. The last two share their first page, and the pages are
// not in order.
struct Cache {
  explicit Cache(at::ScalarType type)
      : all({at::randn({6, ops::kPageTokens, 2, 24}).to(type),
             at::randn({6, ops::kPageTokens, 2, 24}).to(type)}) {}

  ops::Pages all;
  std::vector<std::vector<std::int64_t>> pages{{4}, {5}, {5, 1, 3}};
  Tensor table = numbers({4, 0, 0, 5, 0, 0, 5, 1, 3}).view({3, 3});
  Tensor lengths = numbers({1, 16, 37});
};

Tensor dense(const Tensor& pages, const std::vector<std::int64_t>& of, std::int64_t length) {
  std::vector<Tensor> parts;
  for (const auto page : of) parts.push_back(pages.select(0, page));
  return at::cat(parts).narrow(0, 0, length).transpose(0, 1).unsqueeze(0).to(at::kFloat);
}

TEST_CASE("paged attention equals attention over the contents of the pages", "[paged]") {
  at::manual_seed(3);
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const Cache cache(type);
  const auto qkv = at::randn({3, (4 + 2 * 2) * 24}).to(type);
  const auto out = at::empty({3, 4 * 24}, qkv.options());
  ops::paged_attention(qkv, kShape, cache.all, cache.table, cache.lengths, out);
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto length = cache.lengths[i].item<std::int64_t>();
    const auto& pages = cache.pages[static_cast<std::size_t>(i)];
    const auto q = qkv[i].narrow(0, 0, 4 * 24).view({1, 4, 1, 24}).to(at::kFloat);
    const auto expected = at::scaled_dot_product_attention(q, dense(cache.all.keys, pages, length),
                                                           dense(cache.all.values, pages, length),
                                                           {}, 0.0, false, {}, /*enable_gqa=*/true);
    CAPTURE(i, type);
    CHECK(largest_difference(out[i], expected.view({4 * 24})) < (type == at::kFloat ? 1e-5 : 0.02));
  }
}

TEST_CASE("keys and values are written to their slots and nowhere else", "[paged]") {
  const Cache cache(at::kFloat);
  const auto keys = cache.all.keys.clone(), values = cache.all.values.clone();
  const auto qkv = at::randn({2, (4 + 2 * 2) * 24});
  const std::vector<std::int64_t> slots{2 * ops::kPageTokens + 15, 3 * ops::kPageTokens};
  ops::put_in_pages(qkv, kShape, at::tensor(slots, at::kLong), cache.all);
  for (std::int64_t i = 0; i < 2; ++i) {
    const auto page = i == 0 ? 2 : 3, place = i == 0 ? 15 : 0;
    keys[page][place].copy_(qkv[i].narrow(0, 4 * 24, 2 * 24).view({2, 24}));
    values[page][place].copy_(qkv[i].narrow(0, 6 * 24, 2 * 24).view({2, 24}));
  }
  CHECK(cache.all.keys.equal(keys));
  CHECK(cache.all.values.equal(values));
}

}  // namespace
