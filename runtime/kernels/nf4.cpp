#include "runtime/kernels/nf4.hpp"

#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/all.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/le.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <stdexcept>

#include "runtime/kernels/on_gpu.hpp"

namespace mgpu::ops {
namespace {

constexpr float kLeastBlockScale = 1e-38F;    // avoids dividing by 0 in a block of zeros
constexpr std::int64_t kAtOnce = 64LL << 16;  // elements quantized at a time

Tensor on(const Tensor& like, const float* values, std::int64_t count) {
  return at::from_blob(const_cast<float*>(values), {count}, at::kFloat).clone().to(like.device());
}

Tensor midpoints(const Tensor& like) {
  return on(like, nf4_midpoints().data(), 15);
}

Tensor block_scales(const Nf4& m) {
  if (!m.nested()) return m.scales;
  const auto which =
      at::arange(m.scales.size(0), m.scales.options().dtype(at::kLong)).div_(kNestedBlock, "floor");
  return at::mul(m.levels.index_select(0, m.scales.to(at::kInt)), m.outer.index_select(0, which))
      .add_(m.offset);
}

// The index of the nearest of ascending levels; the lower one in a tie.
Tensor nearest(const Tensor& values, const Tensor& levels) {
  const auto above =
      at::bucketize(values, levels, /*out_int32=*/true).clamp_(1, levels.size(0) - 1);
  const auto below = above.sub(1);
  const auto is_below = at::le(at::sub(values, levels.index_select(0, below)),
                               at::sub(levels.index_select(0, above), values));
  return at::where(is_below, below, above).to(at::kByte);
}

void nest_scales(const Tensor& scales, const Tensor& levels, const Nf4& to) {
  to.levels.copy_(levels);
  to.offset.copy_(scales.mean());
  const auto count = scales.size(0);
  const auto padded = to.outer.size(0) * kNestedBlock;
  const auto apart =
      at::constant_pad_nd(scales.sub(to.offset), {0, padded - count}).view({-1, kNestedBlock});
  const auto largest = apart.abs().amax({1});
  to.outer.copy_(largest);
  const auto inverse = at::where(largest.gt(0), largest.reciprocal(), largest);
  const auto codes =
      nearest(at::mul(apart, inverse.unsqueeze(1)).reshape({-1}), levels.to(scales.device()));
  to.scales.copy_(codes.narrow(0, 0, count));
}

}  // namespace

Nf4 nf4_over(const Tensor& bytes, std::int64_t rows, std::int64_t columns, bool nested) {
  const auto at = nf4_layout(rows * columns, nested);
  const auto floats = [&](std::int64_t begin, std::int64_t count) {
    return bytes.narrow(0, begin, count * 4).view(at::kFloat);
  };
  Nf4 m;
  m.rows = rows;
  m.columns = columns;
  m.codes = bytes.narrow(0, at.codes, rows * columns / 2);
  if (nested) {
    m.levels = floats(at.levels, kNestedLevels);
    m.outer = floats(at.outer, at.outer_blocks);
    m.offset = floats(at.offset, 1);
    m.scales = bytes.narrow(0, at.scales, at.blocks);
  } else {
    m.scales = floats(at.scales, at.blocks);
  }
  return m;
}

void dequantize(const Nf4& m, const Tensor& out) {
  if (on_gpu::can_dequantize(m, out)) return on_gpu::dequantize(m, out);
  const auto high = at::bitwise_right_shift(m.codes, 4);
  const auto low = at::bitwise_and(m.codes, 15);
  const auto indices = at::stack({high, low}, 1).flatten().to(at::kInt);
  const auto values = on(out, kNf4Levels.data(), 16).index_select(0, indices).view({-1, kNf4Block});
  out.view({-1, kNf4Block}).copy_(values.mul(block_scales(m).unsqueeze(1)));
}

void quantize(const Tensor& weight, const Tensor& levels, const Nf4& to) {
  const auto flat = weight.reshape({-1});
  const auto borders = midpoints(weight);
  auto scales = to.nested() ? at::empty({to.scales.size(0)}, to.outer.options()) : to.scales;
  for (std::int64_t begin = 0; begin < flat.size(0); begin += kAtOnce) {
    const auto size = std::min(kAtOnce, flat.size(0) - begin);
    const auto blocks = flat.narrow(0, begin, size).to(at::kFloat).view({-1, kNf4Block});
    const auto largest = blocks.abs().amax({1});
    scales.narrow(0, begin / kNf4Block, size / kNf4Block).copy_(largest);
    const auto inverse = largest.clamp_min(kLeastBlockScale).reciprocal_().unsqueeze(1);
    const auto scaled = at::mul(blocks, inverse).clamp_(-1, 1);
    const auto codes =
        at::bucketize(scaled, borders, /*out_int32=*/true).to(at::kByte).view({-1, 2});
    to.codes.narrow(0, begin / 2, size / 2)
        .copy_(codes.select(1, 0).mul(16).bitwise_or(codes.select(1, 1)));
  }
  if (!at::isfinite(scales).all().item<bool>())
    throw std::runtime_error("a weight that is not finite cannot be stored in 4 bits");
  if (to.nested()) nest_scales(scales, levels, to);
}

}  // namespace mgpu::ops
