#include "runtime/kernels/attention.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/data/batch.hpp"
#include "runtime/train/to_device.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using at::Tensor;

namespace {

// A beginning, and the lengths of its branches.
struct Family {
  std::size_t beginning;
  std::vector<std::size_t> branches;
};

std::vector<std::int32_t> some_tokens(std::size_t count) {
  return std::vector<std::int32_t>(count, 1);
}

struct Layouts {
  ops::Sequences shared, whole;
  Tensor source;  // of each token of `whole`: the token of `shared`
};

Layouts layouts_of(const std::vector<Family>& families) {
  data::BatchBuilder shared, whole;
  std::size_t beginnings = 0;
  for (const auto& family : families) {
    shared.add({some_tokens(family.beginning)});
    beginnings += family.beginning;
  }
  std::vector<std::int64_t> source;
  std::size_t beginning = 0, branch = beginnings;
  for (std::size_t f = 0; f < families.size(); ++f) {
    for (const auto length : families[f].branches) {
      shared.add_branch(f, {some_tokens(length)});
      whole.add({some_tokens(families[f].beginning + length)});
      for (std::size_t i = 0; i < families[f].beginning; ++i)
        source.push_back(static_cast<std::int64_t>(beginning + i));
      for (std::size_t i = 0; i < length; ++i)
        source.push_back(static_cast<std::int64_t>(branch++));
    }
    beginning += families[f].beginning;
  }
  const auto to = [](data::BatchBuilder& batch) {
    return train::to_device(batch.take(), at::kCPU).sequences;
  };
  Tensor indices = at::zeros({static_cast<std::int64_t>(source.size())}, at::kLong);
  std::copy(source.begin(), source.end(), indices.data_ptr<std::int64_t>());
  return {to(shared), to(whole), indices};
}

double error(const Tensor& got, const Tensor& wanted) {
  return (got - wanted).norm().item<double>() / wanted.norm().item<double>();
}

}  // namespace

TEST_CASE("attention to shared beginnings is that of whole sequences, forward and backward",
          "[attention]") {
  const auto families = GENERATE(values<std::vector<Family>>({
      {{5, {3, 7, 1}}},
      {{1, {1}}},
      {{1, {1, 1, 1}}},
      {{9, {4}}, {2, {6, 6}}, {33, {1, 40, 12, 3}}},
      {{6, {6, 6}}, {6, {6}}},  // all sequences are equally long
      {{64, {64, 64, 64, 64}}},
  }));
  const auto shape = GENERATE(values<ops::HeadShape>({{4, 2, 8}, {3, 3, 16}, {6, 1, 8}}));
  const auto scale = GENERATE(1.0, 6.0);  // of queries and keys: flat and sharp softmax
  CAPTURE(families.size(), shape.heads, shape.kv_heads, scale);
  at::manual_seed(11);
  const auto layouts = layouts_of(families);
  const auto width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  const auto qkv = at::randn({layouts.shared.tokens, width}).mul(scale);
  const auto all_qkv = qkv.index_select(0, layouts.source);
  const auto wanted = ops::attention(all_qkv, shape, layouts.whole);
  const auto got = ops::attention(qkv, shape, layouts.shared);
  CHECK(error(got.out.index_select(0, layouts.source), wanted.out) < 1e-6);

  // The gradient of a token that is there once is the sum over its copies.
  const auto g = at::randn(wanted.out.sizes());
  const auto once = at::zeros_like(got.out).index_add(0, layouts.source, g);
  const auto each = ops::attention_backward(g, all_qkv, wanted, shape, layouts.whole);
  const auto sums = at::zeros_like(qkv).index_add(0, layouts.source, each);
  // Scores of about 100, with a sharp softmax, have rounding errors of 1e-5 themselves.
  const double limit = scale > 1 ? 1e-4 : 1e-5;
  CHECK(error(ops::attention_backward(once, qkv, got, shape, layouts.shared), sums) < limit);
}

TEST_CASE("branches do not attend to each other or to other beginnings", "[attention]") {
  const ops::HeadShape shape{2, 1, 8};
  const auto layouts = layouts_of({{4, {3, 3}}, {5, {2, 4}}});
  at::manual_seed(12);
  const auto qkv = at::randn({layouts.shared.tokens, 32});
  const auto before = ops::attention(qkv, shape, layouts.shared).out;
  auto changed = qkv.clone();
  changed.narrow(0, 12, 3).fill_(9);  // the second branch of the first beginning
  changed.narrow(0, 4, 5).fill_(7);   // the second beginning
  const auto after = ops::attention(changed, shape, layouts.shared).out;
  for (const auto& [begin, count] : {std::pair{0, 4}, std::pair{9, 3}})
    CHECK(after.narrow(0, begin, count).equal(before.narrow(0, begin, count)));
  for (const auto& [begin, count] : {std::pair{15, 2}, std::pair{17, 4}})
    CHECK_FALSE(after.narrow(0, begin, count).allclose(before.narrow(0, begin, count)));
}
