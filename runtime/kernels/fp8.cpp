#include "runtime/kernels/fp8.hpp"

#include <ATen/ops/abs.h>
#include <ATen/ops/all.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/kernels/ops.hpp"

#ifdef MGPU_CUDA
#include "runtime/kernels/fp8_kernels.hpp"
#include "runtime/kernels/gpu_tensors.hpp"
#endif

namespace mgpu::ops {
namespace {

constexpr std::int64_t kFp8AtOnce = 1 << 22;  // elements converted at a time

// Rows that are converted at a time: whole blocks.
std::int64_t fp8_rows_at_once(std::int64_t columns) {
  return std::max<std::int64_t>(1, kFp8AtOnce / columns / kFp8Block) * kFp8Block;
}

Tensor fp8_divided(double number, const Tensor& by) {  // at::div by a number rounds twice on a GPU
  return at::full_like(by, number).div_(by);
}

// The largest magnitudes of blocks, [..., 1, ..., 1], become scales of the same shape; `blocks` in
// fp32 becomes codes.
struct Fp8Blocks {
  Tensor codes, scales;
};
Fp8Blocks fp8_of_blocks(const Tensor& blocks, at::IntArrayRef dimensions) {
  const auto largest = blocks.abs().amax(dimensions, true).clamp_min_(kLeastFp8Block);
  return {at::mul(blocks, fp8_divided(kLargestFp8, largest)).to(at::kFloat8_e4m3fn),
          largest.div(at::full_like(largest, kLargestFp8))};
}

// fp32 with zeros up to whole blocks.
Tensor in_whole_blocks(const Tensor& x, bool rows_too) {
  const auto missing = [](std::int64_t size) { return fp8_blocks(size) * kFp8Block - size; };
  return at::constant_pad_nd(x.to(at::kFloat),
                             {0, missing(x.size(1)), 0, rows_too ? missing(x.size(0)) : 0});
}

void quantize_with_aten(const Tensor& weight, const Fp8& to) {
  const auto at_once = fp8_rows_at_once(to.columns), blocks = fp8_blocks(to.columns);
  to.scales.zero_();
  for (std::int64_t begin = 0; begin < to.rows; begin += at_once) {
    const auto count = std::min(at_once, to.rows - begin);
    const auto whole = in_whole_blocks(weight.narrow(0, begin, count), true);
    const auto row_blocks = whole.size(0) / kFp8Block;
    const auto [codes, scales] =
        fp8_of_blocks(whole.view({row_blocks, kFp8Block, blocks, kFp8Block}), {1, 3});
    to.scales.narrow(0, begin / kFp8Block, row_blocks)
        .narrow(1, 0, blocks)
        .copy_(scales.view({row_blocks, blocks}));
    to.codes.narrow(0, begin, count)
        .copy_(codes.view({-1, blocks * kFp8Block}).narrow(0, 0, count).narrow(1, 0, to.columns));
  }
}

Fp8 empty_fp8(std::int64_t rows, std::int64_t columns, at::Device device) {
  const at::TensorOptions options(device);
  return {rows, columns, at::empty({rows, columns}, options.dtype(at::kFloat8_e4m3fn)),
          at::empty({fp8_blocks(rows), fp8_scale_stride(columns)}, options.dtype(at::kFloat))};
}

#ifdef MGPU_CUDA
bool has_whole_blocks(const Fp8& m) {
  return m.codes.is_cuda() && m.rows % kFp8Block == 0 && m.columns % kFp8Block == 0;
}

std::uint8_t* codes_of(const Tensor& codes) {
  return static_cast<std::uint8_t*>(codes.data_ptr());
}

kernels::Fp8RowsOut out_of(const Fp8Rows& x) {
  return {codes_of(x.codes), x.scales.data_ptr<float>()};
}

Fp8Rows empty_fp8_rows(std::int64_t rows, std::int64_t columns, at::Device device) {
  const auto padded = fp8_rows(rows);
  const at::TensorOptions options(device);
  return {rows, at::empty({padded, columns}, options.dtype(at::kFloat8_e4m3fn)),
          at::empty({fp8_blocks(columns), padded}, options.dtype(at::kFloat))};
}

// Whether a kernel can quantize rows of this width while it writes them.
bool can_write_rows(const Tensor& x, std::int64_t columns) {
  return on_gpu::fits(x, columns) && columns % kFp8Block == 0;
}

kernels::Fp8Shape shape_of(const Fp8& m) {
  return {m.rows, m.columns, m.scales.stride(0)};
}
#endif

// Whether a kernel of ours did it.
bool quantize_with_kernel([[maybe_unused]] const Tensor& weight, [[maybe_unused]] const Fp8& to) {
#ifdef MGPU_CUDA
  if (!has_whole_blocks(to) || !on_gpu::fits(weight, to.columns)) return false;
  kernels::quantize_blocks(on_gpu::type_of(weight), weight.const_data_ptr(), codes_of(to.codes),
                           to.scales.data_ptr<float>(), shape_of(to), on_gpu::stream_of(weight));
  return true;
#else
  return false;
#endif
}

}  // namespace

Fp8 fp8_over(const Tensor& bytes, std::int64_t rows, std::int64_t columns) {
  const auto row_blocks = fp8_blocks(rows), stride = fp8_scale_stride(columns);
  return {rows, columns,
          bytes.narrow(0, fp8_layout(rows, columns).codes, rows * columns)
              .view(at::kFloat8_e4m3fn)
              .view({rows, columns}),
          bytes.narrow(0, 0, row_blocks * stride * 4).view(at::kFloat).view({row_blocks, stride})};
}

void dequantize(const Fp8& m, const Tensor& out) {
  const auto at_once = fp8_rows_at_once(m.columns), blocks = fp8_blocks(m.columns);
  for (std::int64_t begin = 0; begin < m.rows; begin += at_once) {
    const auto count = std::min(at_once, m.rows - begin), row_blocks = fp8_blocks(count);
    const auto scales =
        m.scales.narrow(0, begin / kFp8Block, row_blocks).narrow(1, 0, blocks).contiguous();
    const auto codes = m.codes.narrow(0, begin, count).to(at::kFloat);
    const auto whole = in_whole_blocks(codes, true);
    whole.view({row_blocks, kFp8Block, blocks, kFp8Block})
        .mul_(scales.view({row_blocks, 1, blocks, 1}));
    out.narrow(0, begin, count).copy_(whole.narrow(0, 0, count).narrow(1, 0, m.columns));
  }
}

void quantize(const Tensor& weight, const Fp8& to) {
  if (!quantize_with_kernel(weight, to)) quantize_with_aten(weight, to);
  if (!at::isfinite(to.scales).all().item<bool>())
    throw std::runtime_error("a weight that is not finite cannot be stored in fp8");
}

Fp8 quantized(const Tensor& weight) {
  auto result = empty_fp8(weight.size(0), weight.size(1), weight.device());
  if (!quantize_with_kernel(weight, result)) quantize_with_aten(weight, result);
  return result;
}

Fp8Rows quantize_rows(const Tensor& x) {
  const auto rows = x.size(0), columns = x.size(1), blocks = fp8_blocks(columns);
  const auto padded = fp8_rows(rows);
#ifdef MGPU_CUDA
  const auto given = x.is_cuda() ? x.contiguous() : x;
  if (can_write_rows(given, columns)) {
    const auto result = empty_fp8_rows(rows, columns, x.device());
    kernels::quantize_rows(on_gpu::type_of(given), given.const_data_ptr(), out_of(result),
                           {rows, padded, columns}, on_gpu::stream_of(given));
    return result;
  }
#endif
  Tensor whole = at::constant_pad_nd(in_whole_blocks(x, false), {0, 0, 0, padded - rows});
  const auto [codes, scales] = fp8_of_blocks(whole.view({padded, blocks, kFp8Block}), {2});
  return {rows, codes.view({padded, blocks * kFp8Block}).narrow(1, 0, columns).contiguous(),
          scales.view({padded, blocks}).t().contiguous()};
}

WithFp8 swiglu_with_fp8(const Tensor& gate_up) {
#ifdef MGPU_CUDA
  const auto rows = gate_up.size(0), width = gate_up.size(1) / 2;
  if (can_write_rows(gate_up, width)) {
    WithFp8 result{at::empty({rows, width}, gate_up.options()),
                   empty_fp8_rows(rows, width, gate_up.device())};
    kernels::swiglu_in_fp8(on_gpu::type_of(gate_up), gate_up.const_data_ptr(), result.y.data_ptr(),
                           out_of(result.in_fp8), {rows, fp8_rows(rows), width},
                           on_gpu::stream_of(gate_up));
    return result;
  }
#endif
  auto y = swiglu(gate_up);
  auto in_fp8 = quantize_rows(y);
  return {std::move(y), std::move(in_fp8)};
}

WithFp8 swiglu_backward_with_fp8_(Tensor& g, const Tensor& gate_up) {
#ifdef MGPU_CUDA
  const auto rows = gate_up.size(0), columns = gate_up.size(1);
  if (can_write_rows(gate_up, columns / 2)) {
    WithFp8 result{at::empty_like(gate_up), empty_fp8_rows(rows, columns, gate_up.device())};
    g = g.contiguous();
    kernels::swiglu_backward_in_fp8(
        on_gpu::type_of(gate_up), g.data_ptr(), gate_up.const_data_ptr(), result.y.data_ptr(),
        out_of(result.in_fp8), {rows, fp8_rows(rows), columns}, on_gpu::stream_of(gate_up));
    return result;
  }
#endif
  auto y = swiglu_backward_(g, gate_up);
  auto in_fp8 = quantize_rows(y);
  return {std::move(y), std::move(in_fp8)};
}

Tensor dequantize(const Fp8Rows& x) {
  const auto columns = x.codes.size(1), blocks = x.scales.size(0);
  const auto whole = in_whole_blocks(x.codes.narrow(0, 0, x.rows), false);
  whole.view({x.rows, blocks, kFp8Block})
      .mul_(x.scales.narrow(1, 0, x.rows).t().contiguous().unsqueeze(2));
  return whole.narrow(1, 0, columns);
}

Fp8 transposed(const std::vector<Fp8>& parts) {
  const auto columns = parts.front().columns, blocks = fp8_blocks(columns);
  std::int64_t rows = 0;
  for (const auto& part : parts) rows += part.rows;
  auto result = empty_fp8(columns, rows, parts.front().codes.device());
  if (fp8_scale_stride(rows) != fp8_blocks(rows)) result.scales.zero_();
  std::int64_t begin = 0;
  for (const auto& part : parts) {
    if (begin % kFp8Block != 0) throw std::logic_error("parts of fp8 blocks cannot be joined");
    const auto first = begin / kFp8Block;
#ifdef MGPU_CUDA
    if (has_whole_blocks(part)) {
      kernels::transpose_fp8(
          codes_of(part.codes), part.scales.const_data_ptr<float>(), shape_of(part),
          {codes_of(result.codes) + begin, result.scales.data_ptr<float>() + first,
           result.codes.stride(0), result.scales.stride(0)},
          on_gpu::stream_of(part.codes));
      begin += part.rows;
      continue;
    }
#endif
    result.codes.narrow(1, begin, part.rows).copy_(part.codes.t());
    result.scales.narrow(1, first, fp8_blocks(part.rows))
        .copy_(part.scales.narrow(1, 0, blocks).t());
    begin += part.rows;
  }
  return result;
}

}  // namespace mgpu::ops
