#include "runtime/kernels/moment.hpp"

#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>

#include "runtime/kernels/moment_codes.hpp"

namespace mgpu::ops {
namespace {

constexpr double kLeastScale = 1e-38;  // avoids dividing by 0 in a block of zeros

// Expands one number per block to one per element.
Tensor spread(const Tensor& blocks, std::int64_t lead, std::int64_t size) {
  return blocks.unsqueeze(1).expand({-1, kMomentBlock}).reshape({-1}).narrow(0, lead, size);
}

constexpr std::int64_t kLevels = 256;
constexpr std::int64_t kTableRows = 2 + (kernels::kCodeEntries + kLevels - 1) / kLevels;

// Fills the entries of code_of() for a table with these borders, of which those from `zero` on are
// not negative.
void fill_entries(const float* borders, std::int64_t zero, float* entries) {
  bool fits = zero == 0 || zero == kernels::kZeroCode;
  for (std::int64_t i = 0; i < zero; ++i)
    fits = fits && borders[zero - 1 - i] == -borders[zero + i];
  const auto* const last = borders + kLevels - 1;
  const auto* next = borders + zero;  // the first border that is not below the entry's numbers
  next += *next == 0 ? 1 : 0;
  for (std::uint32_t i = 0; i < kernels::kCodeEntries; ++i) {
    const auto begin = kernels::kLeastCoded + (i << 16);
    const auto bits = [&] { return std::bit_cast<std::uint32_t>(*next); };
    fits = fits && bits() >= begin + (i == 0 ? 1 : 0);
    const auto count = static_cast<std::uint32_t>(next - borders - zero);
    const bool here = next < last && bits() <= (begin | 0xffff);
    entries[i] = std::bit_cast<float>(kernels::code_entry(count, here ? bits() & 0xffff : 0xffff));
    next += here ? 1 : 0;
  }
  if (!fits || next != last)
    throw std::logic_error("8-bit moments: levels that cannot be found without a search");
}

constexpr std::int64_t kWord = 0xffffffffLL;

// The bits of fp32 numbers, as numbers from 0 to 2^32 - 1.
Tensor bits_of(const Tensor& values) {
  return values.view(at::kInt).to(at::kLong).bitwise_and_(kWord);
}

// Mixes the bits of 32-bit numbers; the product stays below 2^63.
Tensor mixed(const Tensor& bits) {
  auto x = bits.bitwise_and(kWord);
  for (int round = 0; round < 2; ++round)
    x = at::bitwise_right_shift(x, 16).bitwise_xor_(x).mul_(0x45d9f3bLL).bitwise_and_(kWord);
  return at::bitwise_right_shift(x, 16).bitwise_xor_(x);
}

}  // namespace

std::int64_t moment_blocks(std::int64_t lead, std::int64_t size) {
  return size == 0 ? 0 : (lead + size + kMomentBlock - 1) / kMomentBlock;
}

Tensor moment_table(std::span<const float, 256> levels, at::Device device) {
  Tensor table = at::zeros({kTableRows, kLevels}, at::kFloat);
  auto* rows = table.data_ptr<float>();
  for (std::size_t i = 0; i < 256; ++i) {
    rows[i] = levels[i];
    rows[256 + i] =
        i + 1 < 256 ? (levels[i] + levels[i + 1]) * 0.5F : std::numeric_limits<float>::infinity();
  }
  if (levels[0] == 0) rows[256] = 0;
  const auto zero = std::ranges::find(levels, 0.0F) - levels.begin();
  fill_entries(rows + kLevels, zero, rows + 2 * kLevels);
  return table.to(device);
}

Moment part_of(const Moment& moment, std::int64_t from, std::int64_t size) {
  Moment part{moment.values.narrow(0, from, size), {}, moment.table, 0};
  if (!moment.coded()) return part;
  const auto begin = moment.lead + from;
  part.lead = begin % kMomentBlock;
  part.scales = moment.scales.narrow(0, begin / kMomentBlock, moment_blocks(part.lead, size));
  return part;
}

Tensor block_scales(const Tensor& values, std::int64_t lead) {
  const auto blocks = moment_blocks(lead, values.numel());
  const auto padded = at::zeros({blocks * kMomentBlock}, values.options());
  padded.narrow(0, lead, values.numel()).copy_(values);
  return padded.abs_().view({blocks, kMomentBlock}).amax(1);
}

Tensor decode(const Moment& moment) {
  if (!moment.coded()) return moment.values.to(at::kFloat);
  const auto levels = moment.table.select(0, 0).index_select(0, moment.values.to(at::kInt));
  return at::mul(levels, spread(moment.scales, moment.lead, moment.size()));
}

Tensor random_bits(const Tensor& weights, const Tensor& grad, const Tensor& step) {
  const auto number = step.to(at::kLong).mul_(0x9e3779b9LL);
  return mixed(mixed(bits_of(weights).add_(number)).bitwise_xor_(bits_of(grad)));
}

Tensor round_at_random(const Tensor& values, const Tensor& bits) {
  const auto rounded = bits_of(values).add_(bits.bitwise_and(0xffffLL));
  return rounded.bitwise_and(0xffff0000LL).to(at::kInt).view(at::kFloat);
}

void encode_(const Moment& moment, const Tensor& values, const Tensor& scales) {
  if (!moment.coded()) {
    moment.values.copy_(values);
    return;
  }
  const auto inverse = scales.clamp_min(kLeastScale).reciprocal_();
  const auto scaled = at::mul(values, spread(inverse, moment.lead, moment.size())).clamp_(-1, 1);
  moment.values.copy_(at::bucketize(scaled, moment.table.select(0, 1), true));
  moment.scales.copy_(scales);
}

}  // namespace mgpu::ops
