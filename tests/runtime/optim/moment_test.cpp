#include "runtime/kernels/moment.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "runtime/kernels/moment_codes.hpp"
#include "runtime/optim/moment_vectors.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::ops;
using mgpu::optim::first_moment_table;
using mgpu::optim::second_moment_table;

namespace {

Moment empty_moment(const Tensor& table, std::int64_t size, std::int64_t lead) {
  return {at::zeros({size}, at::kByte), at::zeros({moment_blocks(lead, size)}), table, lead};
}

Moment encoded(const Tensor& values, const Tensor& table, std::int64_t lead) {
  const auto moment = empty_moment(table, values.numel(), lead);
  encode_(moment, values, block_scales(values, lead));
  return moment;
}

Tensor table_of(bool first) {
  return first ? first_moment_table(at::kCPU) : second_moment_table(at::kCPU);
}

// Each of these and the numbers next to it on both sides, as far as they are in [least, 1].
std::vector<float> with_neighbours(const std::vector<float>& numbers, float least) {
  std::vector<float> all;
  for (const float number : numbers) {
    float below = number, above = number;
    all.push_back(number);
    for (int i = 0; i < 3; ++i) {
      all.push_back(below = std::nextafter(below, -2.0F));
      all.push_back(above = std::nextafter(above, 2.0F));
    }
  }
  std::erase_if(all, [&](float x) { return !(x >= least && x <= 1); });
  return all;
}

// Values of many magnitudes, like moments.
Tensor draw(bool first, std::int64_t size) {
  at::manual_seed(3);
  const auto values = at::randn({size}) * at::exp(at::randn({size}) * 3);
  return first ? values : values.square();
}

}  // namespace

TEST_CASE("a code is the level nearest to value / scale", "[moment]") {
  const bool first = GENERATE(true, false);
  const auto lead = GENERATE(0, 64, 255);
  const auto values = draw(first, 1000);
  const auto moment = encoded(values, table_of(first), lead);
  const auto* levels = moment.table.const_data_ptr<float>();
  const auto* value = values.const_data_ptr<float>();
  std::vector<float> largest(static_cast<std::size_t>(moment.scales.numel()));
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    auto& here = largest[static_cast<std::size_t>((lead + i) / kMomentBlock)];
    here = std::max(here, std::abs(value[i]));
  }
  for (std::size_t block = 0; block < largest.size(); ++block)
    CHECK(moment.scales.const_data_ptr<float>()[block] == largest[block]);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const float scaled = value[i] / largest[static_cast<std::size_t>((lead + i) / kMomentBlock)];
    const auto distance = [&](float level) { return std::abs(level - scaled); };
    const auto chosen = distance(levels[moment.values.const_data_ptr<std::uint8_t>()[i]]);
    const auto from = first ? levels : levels + 1;  // nothing here is 0
    const auto nearest = std::min_element(
        from, levels + 256, [&](float a, float b) { return distance(a) < distance(b); });
    REQUIRE(chosen <= distance(*nearest) + 1e-7F);
  }
}

TEST_CASE("the codes of GPUs, found without a search, are those of a search", "[moment]") {
  namespace kernels = mgpu::kernels;
  const bool first = GENERATE(true, false);
  const auto table = table_of(first);
  const auto* levels = table.const_data_ptr<float>();
  const auto* borders = levels + 256;
  std::vector<std::uint32_t> entries;
  for (int i = 0; i < kernels::kCodeEntries; ++i)
    entries.push_back(std::bit_cast<std::uint32_t>(borders[256 + i]));
  std::vector<float> numbers(levels, borders + 255);
  for (std::uint32_t i = 0; i < kernels::kCodeEntries; ++i)
    numbers.push_back(std::bit_cast<float>(kernels::kLeastCoded + (i << 16)));
  const auto drawn = draw(first, 100000);
  for (std::int64_t i = 0; i < drawn.numel(); ++i)
    numbers.push_back(drawn.const_data_ptr<float>()[i]);
  if (first)
    for (auto i = numbers.size(); i-- > 0;) numbers.push_back(-numbers[i]);
  for (const float tiny : {0.0F, -0.0F, 1e-45F, 2.8e-45F, 1e-40F, 1e-20F, 1e-9F})
    numbers.push_back(tiny);
  for (const float x : with_neighbours(numbers, first ? -1.0F : 0.0F)) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const auto code = first ? kernels::code_of<true>(entries.data(), bits)
                            : kernels::code_of<false>(entries.data(), bits);
    const auto searched = std::lower_bound(borders, borders + 255, x) - borders;
    CAPTURE(x);
    REQUIRE(code == static_cast<unsigned>(searched));
  }
}

TEST_CASE("levels that cannot be found without a search are refused", "[moment]") {
  std::vector<float> levels(256);
  for (std::size_t i = 0; i < levels.size(); ++i) levels[i] = 1e-9F * static_cast<float>(i);
  CHECK_THROWS_AS(moment_table(std::span<const float, 256>(levels), at::kCPU), std::logic_error);
}

TEST_CASE("a second moment above 0 does not become 0", "[moment]") {
  const auto values = at::zeros({256});
  values[0] = 1;
  values[1] = 1e-12;
  const auto second = decode(encoded(values, table_of(false), 0));
  CHECK(second[1].item<float>() > 0);
  CHECK(second[2].item<float>() == 0);
  CHECK(decode(encoded(values, table_of(true), 0))[1].item<float>() == 0);
}

TEST_CASE("decoding and encoding with the same scales keeps every code", "[moment]") {
  const bool first = GENERATE(true, false);
  const float scale = GENERATE(1.0F, 3e-30F, 0.7F, 123.4F);
  const auto moment = empty_moment(table_of(first), 512, 0);
  moment.values.copy_(at::arange(512, at::kInt));
  moment.scales.fill_(scale);
  const auto again = empty_moment(moment.table, 512, 0);
  encode_(again, decode(moment), moment.scales);
  CHECK(at::equal(again.values, moment.values));
  CHECK(at::equal(again.scales, moment.scales));
}

TEST_CASE("quantizing decoded values again gives the same codes and scales", "[moment]") {
  const bool first = GENERATE(true, false);
  auto values = draw(first, 4000);
  if (first) {  // no level is -1: if the largest value is negative, its scale changes
    for (std::int64_t i = 0; i < 4000; i += kMomentBlock) values[i] = 1e9;
  }
  const auto moment = encoded(values, table_of(first), 0);
  const auto again = encoded(decode(moment), moment.table, 0);
  CHECK(at::equal(again.values, moment.values));
  CHECK(at::equal(again.scales, moment.scales));
}

TEST_CASE("rounding at random gives a neighbour in bf16 and keeps the mean", "[moment]") {
  at::manual_seed(3);
  constexpr std::int64_t kMany = 1 << 16;
  const auto weights = at::randn({kMany}), grad = at::randn({kMany});
  const auto rounded_in_step = [&](const Tensor& values, double step) {
    return round_at_random(values, random_bits(weights, grad, at::full({}, step)));
  };
  const double value = GENERATE(1.001, 1.0, -3.14159e-9, 0.0);
  const auto values = at::full({kMany}, value);
  const auto rounded = rounded_in_step(values, 7);
  CHECK(at::equal(rounded, rounded.to(at::kBFloat16).to(at::kFloat)));
  CHECK((rounded - values).abs().max().item<double>() <= std::abs(value) / 128);
  CHECK(std::abs(rounded.mean().item<double>() - value) <= std::abs(value) * 1e-4);
  CHECK(at::equal(rounded, rounded_in_step(values, 7)));
  if (value == 1.001) CHECK_FALSE(at::equal(rounded, rounded_in_step(values, 8)));
  // Elements without a gradient are rounded anew in every step, too.
  const auto none = at::zeros({1}), one = at::full({1}, value);
  Tensor sum = at::zeros({1});
  for (int step = 1; step <= 1024; ++step)
    sum += round_at_random(one, random_bits(none, none, at::full({}, static_cast<double>(step))));
  CHECK(std::abs((sum / 1024).item<double>() - value) <= std::abs(value) * 1e-3);
}

TEST_CASE("a part decodes to the same values as in the whole", "[moment]") {
  const auto moment = encoded(draw(true, 2000), table_of(true), 100);
  const auto whole = decode(moment);
  const auto [from, size] = GENERATE(std::pair{0, 2000}, std::pair{0, 156}, std::pair{156, 256},
                                     std::pair{155, 2}, std::pair{700, 1300}, std::pair{1999, 1});
  const auto part = part_of(moment, from, size);
  CHECK(part.lead == (100 + from) % kMomentBlock);
  CHECK(part.scales.numel() == moment_blocks(part.lead, size));
  CHECK(at::equal(decode(part), whole.narrow(0, from, size)));
}
