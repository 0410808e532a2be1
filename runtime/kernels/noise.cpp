#include "runtime/kernels/noise.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/rsqrt.h>

#include <algorithm>
#include <optional>

namespace mgpu::ops {
namespace {

constexpr std::int64_t kLow32 = 0xffffffffLL;
constexpr std::int64_t kNoiseAtOnce = 1 << 20;  // elements that get their noise together

// Mixes the bits of numbers below 2^32; the product stays below 2^63.
Tensor scrambled(const Tensor& bits) {
  auto x = at::bitwise_and(bits, kLow32);
  for (int round = 0; round < 3; ++round)
    x = at::bitwise_right_shift(x, 16).bitwise_xor_(x).mul_(0x45d9f3bLL).bitwise_and_(kLow32);
  return at::bitwise_right_shift(x, 16).bitwise_xor_(x);
}

// The largest noise of each token.
Tensor noise_limits(const Tensor& x, const Tensor& starts, double alpha) {
  const auto count = starts.size(0) - 1;
  const Tensor lengths = starts.narrow(0, 1, count).sub(starts.narrow(0, 0, count)).to(at::kLong);
  const Tensor sequence = at::repeat_interleave(lengths, std::optional<std::int64_t>(x.size(0)));
  const Tensor largest = lengths.to(at::kFloat).mul_(x.size(1)).rsqrt_().mul_(alpha);
  return largest.index_select(0, sequence).unsqueeze(1);
}

}  // namespace

void add_noise_(Tensor& x, const Tensor& starts, double alpha, std::uint64_t seed) {
  const auto rows = x.size(0), width = x.size(1);
  const auto numbers = x.options().dtype(at::kLong);
  const auto low = static_cast<std::int64_t>(seed & 0xffffffffU);
  const auto high = static_cast<std::int64_t>(seed >> 32);
  const Tensor row_bits =
      scrambled(scrambled(at::arange(rows, numbers).add_(low)).bitwise_xor_(high));
  const Tensor column_bits = scrambled(at::arange(width, numbers).mul_(0x9e3779b9LL));
  const Tensor largest = noise_limits(x, starts, alpha);
  const auto at_once = std::max<std::int64_t>(1, kNoiseAtOnce / width);
  for (std::int64_t begin = 0; begin < rows; begin += at_once) {
    const auto count = std::min(at_once, rows - begin);
    const Tensor bits =
        scrambled(at::add(row_bits.narrow(0, begin, count).unsqueeze(1), column_bits.unsqueeze(0)));
    const Tensor uniform = bits.to(at::kFloat).mul_(0x1p-31).sub_(1);
    x.narrow(0, begin, count).add_(uniform.mul_(largest.narrow(0, begin, count)));
  }
}

}  // namespace mgpu::ops
