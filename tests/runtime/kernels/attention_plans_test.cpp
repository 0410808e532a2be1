#include "runtime/kernels/attention_plans.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/catch.hpp"

using mgpu::ops::AttentionPlanLimits;
using mgpu::ops::AttentionPlans;
using mgpu::ops::AttentionShape;
using mgpu::ops::covers;
using mgpu::ops::divide_attention;
using mgpu::ops::packed_shape;
using mgpu::ops::PackedShapes;
using mgpu::ops::with_reserve;

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

namespace {

constexpr AttentionShape kHeads{.heads = 12, .kv_heads = 2, .head_dim = 128};

std::vector<std::int32_t> starts_of(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> starts{0};
  for (const auto length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

}  // namespace

TEST_CASE("sequences of equal length are one part, padded to a multiple of 64", "[plans]") {
  AttentionPlans plans;
  const auto division = divide_attention(starts_of({70, 70, 70}), kHeads, plans);
  REQUIRE(division.cudnn.size() == 1);
  const auto& part = division.cudnn.front();
  CHECK((part.begin == 0 && part.count == 3 && part.length == 70 && part.computed == 128));
  CHECK(division.rest.empty());
  CHECK(division.rest_starts.empty());
}

TEST_CASE("of unequal sequences each long one is a part, and the short ones are the rest",
          "[plans]") {
  AttentionPlans plans;
  const auto division = divide_attention(starts_of({3, 3000, 2047, 4096, 2}), kHeads, plans);
  REQUIRE(division.cudnn.size() == 2);
  const auto &first = division.cudnn[0], &second = division.cudnn[1];
  CHECK((first.begin == 3 && first.count == 1 && first.length == 3000 && first.computed == 3072));
  CHECK((second.begin == 5050 && second.length == 4096 && second.computed == 4096));
  CHECK(division.rest_starts == std::vector<std::int32_t>{0, 3, 2050, 2052});
  CHECK(division.rest_longest == 2047);
  REQUIRE(division.rest.size() == 2052);
  CHECK((division.rest[0] == 0 && division.rest[2] == 2));
  CHECK((division.rest[3] == 3003 && division.rest[2049] == 5049));
  CHECK((division.rest[2050] == 9146 && division.rest[2051] == 9147));
}

TEST_CASE("packed sequences of all lengths need few plans and little padding", "[plans]") {
  AttentionPlans plans;
  for (int pass = 0; pass < 10; ++pass)
    for (std::int32_t length = 2048; length <= 32768; length += 37) {
      const auto division = divide_attention(starts_of({length, 5}), kHeads, plans);
      for (const auto& part : division.cudnn) {
        CHECK(part.computed >= part.length);
        CHECK(part.computed * 8 < part.length * 9);
      }
      if (pass == 9) CHECK(division.cudnn.size() == 1);
    }
  CHECK(plans.plans() <= 4 * 8 * 2 + 1);
}

TEST_CASE("sequences without a plan are left to flash attention", "[plans]") {
  AttentionPlans plans({.at_once = 0, .often = 2, .most = 4, .counted = 5});
  const auto equal = divide_attention(starts_of({64, 64}), kHeads, plans);
  CHECK(equal.cudnn.empty());
  CHECK(equal.rest_starts == std::vector<std::int32_t>{0, 64, 128});
  const auto unequal = starts_of({4000, 2100});
  CHECK(divide_attention(unequal, kHeads, plans).cudnn.empty());
  CHECK(divide_attention(unequal, kHeads, plans).cudnn.size() == 2);
}

TEST_CASE("a plan for several lengths covers the micro-batch that it is made for", "[plans]") {
  for (const auto& lengths : std::vector<std::vector<std::int32_t>>{
           {1}, {300, 1}, {2048, 2049, 5}, {4569, 2798}, std::vector<std::int32_t>(41, 200)}) {
    const auto starts = starts_of(lengths);
    const auto shape = packed_shape(starts, kHeads);
    CHECK(shape.sequences == static_cast<std::int64_t>(lengths.size()));
    CHECK(shape.length == *std::ranges::max_element(lengths));
    CHECK(shape.tokens == starts.back());
    const auto wider = with_reserve(shape);
    CHECK(covers(wider, shape));
    CHECK(wider.sequences <= shape.sequences * 3);
    CHECK(wider.length <= std::max<std::int64_t>(128, shape.length * 2));
    CHECK(wider.tokens <= std::max<std::int64_t>(128, shape.tokens * 5 / 4));
  }
}

namespace {

// How many plans the micro-batches get whose numbers of sequences these are.
std::size_t plans_for(const std::vector<std::int32_t>& counts, std::int32_t tokens) {
  PackedShapes shapes;
  std::set<AttentionShape> used;
  for (const auto count : counts) {
    const auto shape = packed_shape(
        starts_of(std::vector<std::int32_t>(static_cast<std::size_t>(count), tokens / count)),
        kHeads);
    const auto plan = shapes.count(shape);
    REQUIRE(plan);
    CHECK(covers(*plan, shape));
    CHECK(plan->sequences <= 4 * shape.sequences);
    used.insert(*plan);
  }
  return used.size();
}

}  // namespace

TEST_CASE("rows packed into bins need few plans", "[plans]") {
  CHECK(plans_for({1, 2, 1, 3, 2, 2, 1}, 8100) <= 4);
}

TEST_CASE("a micro-batch with a few sequences more than all before gets no new plan", "[plans]") {
  auto shape = kHeads;
  shape.length = 2037;
  shape.tokens = 7946;
  PackedShapes shapes;
  shape.sequences = 5;
  const auto first = shapes.count(shape);
  REQUIRE(first);
  for (const std::int64_t sequences : {8, 7, 6, 4, 9, 5}) {
    shape.sequences = sequences;
    CHECK(shapes.count(shape) == first);
  }
}

TEST_CASE("a micro-batch of few sequences gets a plan of its own, and until then a wider one",
          "[plans]") {
  PackedShapes shapes({.at_once = 1, .often = 2, .most = 2});
  auto many = kHeads;
  many.sequences = 16;
  many.length = many.tokens = 4096;
  auto half = many, few = many;
  half.sequences = 8;
  few.sequences = 2;
  CHECK_FALSE(PackedShapes({.at_once = 0, .often = 2, .most = 2}).count(many));
  const auto wide = with_reserve(many);
  CHECK(shapes.count(many) == wide);
  for (int i = 0; i < 5; ++i) CHECK(shapes.count(half) == wide);
  CHECK(shapes.count(few) == wide);
  CHECK(shapes.count(few) == with_reserve(few));
  CHECK(shapes.count(many) == wide);
}

TEST_CASE("a micro-batch of far fewer tokens gets a plan of its own, which needs less memory",
          "[plans]") {
  PackedShapes shapes;
  auto many = kHeads, few = kHeads;
  many.sequences = few.sequences = 4;
  many.length = few.length = 1000;
  many.tokens = 8192;
  few.tokens = 2400;
  CHECK(shapes.count(many) == with_reserve(many));
  CHECK(shapes.count(few) == with_reserve(few));
  few.tokens = 5000;
  CHECK(shapes.count(few) == with_reserve(many));
}

TEST_CASE("a plan that cannot be built is not tried again and hides no other", "[plans]") {
  PackedShapes shapes;
  auto many = kHeads, few = kHeads;
  many.sequences = 16;
  few.sequences = 2;
  many.length = many.tokens = few.length = few.tokens = 4096;
  CHECK(shapes.count(many) == with_reserve(many));
  CHECK(shapes.count(few) == with_reserve(few));
  shapes.refuse(with_reserve(few));
  CHECK(shapes.count(few) == with_reserve(many));
  shapes.refuse(with_reserve(many));
  CHECK_FALSE(shapes.count(few));
  CHECK_FALSE(shapes.count(many));
}

TEST_CASE("a plan does not cover more sequences, longer ones, more tokens or other heads",
          "[plans]") {
  const auto plan = packed_shape(starts_of({4000, 2100}), kHeads);
  auto more = plan, longer = plan, larger = plan, heads = plan;
  ++more.sequences;
  ++longer.length;
  ++larger.tokens;
  heads.kv_heads = 4;
  CHECK(covers(plan, plan));
  for (const auto& other : {more, longer, larger, heads}) CHECK_FALSE(covers(plan, other));
  CHECK(covers(more, plan));
}
