#include "runtime/kernels/attention_plans.hpp"

#include "tests/support/catch.hpp"

using mgpu::ops::AttentionPlanLimits;
using mgpu::ops::AttentionPlans;
using mgpu::ops::AttentionShape;

namespace {

constexpr AttentionPlanLimits kSmall{.at_once = 2, .often = 3, .most = 4, .counted = 5};

AttentionShape of_length(std::int64_t length) {
  return {.sequences = 1, .length = length, .heads = 12, .kv_heads = 2, .head_dim = 128};
}

// The number of the micro-batch of this shape from which on cuDNN computes it; 0: not in 100.
int first_with_cudnn(AttentionPlans& plans, const AttentionShape& shape) {
  for (int number = 1; number <= 100; ++number)
    if (plans.count(shape)) return number;
  return 0;
}

}  // namespace

TEST_CASE("the first shapes get plans at once, later ones when they have come often", "[plans]") {
  AttentionPlans plans(kSmall);
  CHECK(first_with_cudnn(plans, of_length(64)) == 1);
  CHECK(first_with_cudnn(plans, of_length(128)) == 1);
  CHECK(first_with_cudnn(plans, of_length(192)) == 3);
  CHECK(plans.count(of_length(64)));
  CHECK(plans.count(of_length(192)));
  CHECK(plans.plans() == 3);
}

TEST_CASE("rows of ever new lengths get no more plans than the bound", "[plans]") {
  AttentionPlans plans;
  int with_cudnn = 0;
  for (int pass = 0; pass < 20; ++pass)
    for (std::int64_t length = 64; length <= 32768; length += 64)
      with_cudnn += plans.count(of_length(length)) ? 1 : 0;
  CHECK(plans.plans() == 64);
  CHECK(plans.counts() == 0);  // nothing is counted when no plan is left
  // Eight lengths in all 20 passes, 56 from the eighth pass on.
  CHECK(with_cudnn == 8 * 20 + 56 * 13);
}

TEST_CASE("the counts of shapes that never come again do not pile up", "[plans]") {
  AttentionPlans plans(kSmall);
  for (std::int64_t length = 1; length <= 1000; ++length) {
    plans.count(of_length(length));
    CHECK(plans.counts() <= kSmall.counted);
  }
  CHECK(plans.plans() == kSmall.at_once);
}

TEST_CASE("shapes differ by everything that a plan depends on", "[plans]") {
  const auto shape = of_length(64);
  AttentionShape more = shape, padded = shape, heads = shape, keys = shape, wide = shape;
  more.sequences = 2;
  padded.padded = true;
  heads.heads = 14;
  keys.kv_heads = 4;
  wide.head_dim = 64;
  for (const auto& other : {of_length(128), more, padded, heads, keys, wide}) {
    AttentionPlans plans({.at_once = 1, .often = 2, .most = 2});
    CHECK(plans.count(shape));
    CHECK_FALSE(plans.count(other));
    CHECK(plans.count(other));
  }
}
