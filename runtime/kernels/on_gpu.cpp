#include "runtime/kernels/on_gpu.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#ifdef MGPU_CUDA
#include "runtime/kernels/gpu_tensors.hpp"
#endif

namespace mgpu::ops::on_gpu {

#ifdef MGPU_CUDA

namespace {

kernels::NormShape norm_shape(const Tensor& x, double eps) {
  return {x.numel() / x.size(-1), x.size(-1), eps};
}

const void* pointer(const Tensor& x) {
  return x.defined() ? x.const_data_ptr() : nullptr;
}

// Where a kernel that adds in fp32 adds a part of this gradient, which may be undefined; then
// add_part() adds it to a gradient in bf16.
Tensor part_in_fp32(const Tensor& gradient) {
  if (!gradient.defined() || gradient.scalar_type() == at::kFloat) return gradient;
  return at::zeros(gradient.sizes(), gradient.options().dtype(at::kFloat));
}

void add_part(const Tensor& gradient, const Tensor& part) {
  if (gradient.defined() && !gradient.is_same(part)) gradient.add_(part);
}

float* floats_in(const Tensor& x) {
  return x.defined() ? x.data_ptr<float>() : nullptr;
}

}  // namespace

bool can_norm(const Tensor& x, const Tensor& w) {
  const auto width = x.size(-1);
  return fits(x, width) && fits(w, width) && width <= kernels::kWidestNorm &&
         x.scalar_type() == w.scalar_type();
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, const Tensor& w, double eps) {
  const auto shape = norm_shape(x, eps);
  Tensor y = at::empty_like(x);
  Tensor rstd = floats(x, shape.rows);
  kernels::rms_norm(type_of(x), x.const_data_ptr(), nullptr, w.const_data_ptr(), nullptr,
                    y.data_ptr(), rstd.data_ptr<float>(), shape, stream_of(x));
  return {y, rstd};
}

std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual,
                                                const Tensor& w, double eps) {
  const auto shape = norm_shape(x, eps);
  Tensor sum = at::empty_like(x);
  Tensor y = at::empty_like(x);
  Tensor rstd = floats(x, shape.rows);
  kernels::rms_norm(type_of(x), x.const_data_ptr(), residual.contiguous().const_data_ptr(),
                    w.const_data_ptr(), sum.data_ptr(), y.data_ptr(), rstd.data_ptr<float>(), shape,
                    stream_of(x));
  return {sum, y, rstd};
}

Tensor rms_norm_backward(const Tensor& gy, const Tensor& x, const Tensor& w, const Tensor& rstd,
                         const Tensor& residual, const Tensor& gw) {
  const auto shape = norm_shape(x, 0);
  Tensor gx = at::empty_like(x);
  const Tensor scratch = gw.defined() ? floats(x, kernels::norm_scratch(shape.width)) : Tensor();
  const Tensor g = gy.contiguous();
  const Tensor added = residual.defined() ? residual.contiguous() : Tensor();
  const Tensor part = part_in_fp32(gw);
  kernels::rms_norm_backward(type_of(x), g.const_data_ptr(), x.const_data_ptr(), w.const_data_ptr(),
                             rstd.const_data_ptr<float>(), pointer(added), gx.data_ptr(),
                             floats_in(part), floats_in(scratch), shape, stream_of(x));
  add_part(gw, part);
  return gx;
}

bool can_swiglu(const Tensor& gate_up) {
  return fits(gate_up, gate_up.size(-1) / 2);
}

Tensor swiglu(const Tensor& gate_up) {
  const auto rows = gate_up.size(0);
  const auto width = gate_up.size(1) / 2;
  Tensor out = at::empty({rows, width}, gate_up.options());
  kernels::swiglu(type_of(gate_up), gate_up.const_data_ptr(), out.data_ptr(), rows, width,
                  stream_of(gate_up));
  return out;
}

Tensor swiglu_backward_(Tensor& g, const Tensor& gate_up) {
  Tensor out = at::empty_like(gate_up);
  g = g.contiguous();
  kernels::swiglu_backward(type_of(gate_up), g.data_ptr(), gate_up.const_data_ptr(), out.data_ptr(),
                           gate_up.size(0), gate_up.size(1) / 2, stream_of(gate_up));
  return out;
}

bool can_drop_out(const Tensor& x) {
  return fits(x, x.numel());
}

void drop_out(const Tensor& x, const Dropout& dropout, const Tensor& out) {
  constexpr double kNumbers = 65536;
  const auto threshold = std::min(std::round(dropout.probability * kNumbers), kNumbers - 1);
  kernels::dropout(type_of(x), x.const_data_ptr(), out.data_ptr(), x.numel(),
                   {dropout.seed, static_cast<std::uint32_t>(threshold)}, stream_of(x));
}

namespace {

kernels::HeadNorms kernel_shape(const Tensor& qkv, const HeadNorms& norms) {
  const auto& s = norms.shape;
  return {qkv.size(0), qkv.size(1), s.heads, s.kv_heads, s.head_dim, static_cast<float>(norms.eps)};
}

kernels::HeadWeights pointers(const HeadNorms& norms) {
  return {norms.q.const_data_ptr(), norms.k.const_data_ptr()};
}

kernels::Rotation pointers(const Rotation& rotation) {
  return {rotation.cos.const_data_ptr<float>(), rotation.sin.const_data_ptr<float>(),
          rotation.positions.const_data_ptr<std::int32_t>()};
}

}  // namespace

bool can_norm_heads(const Tensor& qkv, const HeadNorms& norms) {
  const auto width = norms.shape.head_dim;
  return fits(qkv, qkv.size(1)) && fits(norms.q, width) && fits(norms.k, width) &&
         kernels::can_norm_heads(width) && norms.q.scalar_type() == qkv.scalar_type() &&
         norms.k.scalar_type() == qkv.scalar_type();
}

void norm_heads_(const Tensor& qkv, const HeadNorms& norms, const Rotation& rotation,
                 HeadNormsSaved* saved) {
  const auto shape = kernel_shape(qkv, norms);
  const auto heads = shape.heads + shape.kv_heads;
  if (saved != nullptr) {
    saved->before = at::empty({shape.rows * heads, shape.head_dim}, qkv.options());
    saved->rstd = at::empty({shape.rows, heads}, qkv.options().dtype(at::kFloat));
  }
  kernels::norm_heads(type_of(qkv), qkv.data_ptr(), pointers(norms), pointers(rotation),
                      saved != nullptr ? saved->before.data_ptr() : nullptr,
                      saved != nullptr ? saved->rstd.data_ptr<float>() : nullptr, shape,
                      stream_of(qkv));
}

void norm_heads_backward_(const Tensor& g_qkv, const HeadNorms& norms, const Rotation& rotation,
                          const HeadNormsSaved& saved, const Tensor& gq, const Tensor& gk) {
  const auto shape = kernel_shape(g_qkv, norms);
  const Tensor scratch = floats(g_qkv, kernels::head_norms_scratch(shape.head_dim));
  const Tensor q_part = part_in_fp32(gq), k_part = part_in_fp32(gk);
  kernels::norm_heads_backward(
      type_of(g_qkv), g_qkv.data_ptr(), pointers(norms), pointers(rotation),
      saved.before.const_data_ptr(), saved.rstd.const_data_ptr<float>(), floats_in(q_part),
      floats_in(k_part), scratch.data_ptr<float>(), shape, stream_of(g_qkv));
  add_part(gq, q_part);
  add_part(gk, k_part);
}

bool can_rotate(const Tensor& qkv, std::int64_t head_dim) {
  return fits(qkv, qkv.size(-1)) && head_dim % 16 == 0;
}

void rotate_(const Tensor& qkv, std::int64_t heads, std::int64_t head_dim, const Tensor& cos,
             const Tensor& sin, const Tensor& positions, bool back) {
  kernels::rotate(type_of(qkv), qkv.data_ptr(), cos.const_data_ptr<float>(),
                  sin.const_data_ptr<float>(), positions.const_data_ptr<std::int32_t>(), back,
                  {qkv.size(0), qkv.size(1), heads, head_dim}, stream_of(qkv));
}

namespace {

// The address at which GPUs read pinned host memory; null if it is other memory.
const void* address_on_gpu(const Tensor& on_host) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, on_host.const_data_ptr()) != cudaSuccess) {
    cudaGetLastError();  // it is handled here
    return nullptr;
  }
  return attributes.type == cudaMemoryTypeHost ? attributes.devicePointer : nullptr;
}

std::int64_t row_bytes(const Tensor& matrix) {
  return matrix.size(1) * static_cast<std::int64_t>(matrix.element_size());
}

}  // namespace

bool can_look_up(const Tensor& on_host, const Tensor& rows) {
  return on_host.is_cpu() && rows.is_cuda() && on_host.is_contiguous() && rows.is_contiguous() &&
         rows.scalar_type() == at::kInt && row_bytes(on_host) % 16 == 0 &&
         reinterpret_cast<std::uintptr_t>(on_host.const_data_ptr()) % 16 == 0 &&
         address_on_gpu(on_host) != nullptr;
}

Tensor look_up(const Tensor& on_host, const Tensor& rows) {
  Tensor out =
      at::empty({rows.size(0), on_host.size(1)}, rows.options().dtype(on_host.scalar_type()));
  kernels::copy_rows(address_on_gpu(on_host), rows.const_data_ptr<std::int32_t>(), out.data_ptr(),
                     rows.size(0), row_bytes(on_host), stream_of(rows));
  return out;
}

bool can_cross_entropy(const Tensor& logits) {
  return logits.is_cuda() && known_type(logits) && logits.is_contiguous();
}

CrossEntropy cross_entropy_(const Tensor& logits, const Tensor& targets, const double* scale) {
  const auto rows = logits.size(0);
  CrossEntropy out{floats(logits, rows), at::empty({rows}, logits.options().dtype(at::kBool)),
                   floats(logits, rows)};
  kernels::cross_entropy(
      type_of(logits), logits.data_ptr(),
      {.targets = targets.const_data_ptr<std::int32_t>(),
       .overwrite = scale != nullptr,
       .scale = scale != nullptr ? static_cast<float>(*scale) : 0.0F},
      {out.loss.data_ptr<float>(), out.correct.data_ptr<bool>(), out.entropy.data_ptr<float>()},
      rows, logits.size(1), stream_of(logits));
  return out;
}
TokenScores token_scores_(const Tensor& logits, const Tensor& targets, double temperature,
                          const Tensor* slopes, const Tensor* entropy_slopes) {
  const auto rows = logits.size(0);
  TokenScores out{floats(logits, rows), floats(logits, rows)};
  const auto slopes_in = [](const Tensor* t) { return t != nullptr ? floats_in(*t) : nullptr; };
  kernels::cross_entropy(
      type_of(logits), logits.data_ptr(),
      {.targets = targets.const_data_ptr<std::int32_t>(),
       .overwrite = slopes != nullptr,
       .sharpness = static_cast<float>(1 / temperature),
       .slopes = slopes_in(slopes),
       .entropy_slopes = slopes_in(entropy_slopes)},
      {out.log_probs.data_ptr<float>(), nullptr, out.entropies.data_ptr<float>()}, rows,
      logits.size(1), stream_of(logits));
  out.log_probs.neg_();
  return out;
}

namespace {

kernels::AdamW rounded(const AdamWStep& step) {
  return {static_cast<float>(step.learning_rate), static_cast<float>(step.beta1),
          static_cast<float>(step.beta2), static_cast<float>(step.epsilon),
          static_cast<float>(step.decay)};
}

kernels::CodedMoment coded(const Moment& moment) {
  return {moment.values.data_ptr<std::uint8_t>(), moment.scales.data_ptr<float>(),
          moment.table.const_data_ptr<float>()};
}

}  // namespace

bool can_adamw(const Tensor& master) {
  return master.is_cuda() && reinterpret_cast<std::uintptr_t>(master.const_data_ptr()) % 16 == 0;
}

void adamw_(const AdamWStep& step, const Tensor& master, const Tensor& value, const Tensor& grad,
            const Tensor& first, const Tensor& second, const Tensor& clip, const Tensor& skip,
            const Tensor& count) {
  kernels::adamw(rounded(step), master.data_ptr<float>(), type_of(value.defined() ? value : master),
                 value.defined() ? value.data_ptr() : nullptr, type_of(grad), grad.const_data_ptr(),
                 type_of(first), first.data_ptr(), second.data_ptr(), clip.const_data_ptr<float>(),
                 skip.const_data_ptr<float>(), count.const_data_ptr<float>(), master.numel(),
                 stream_of(master));
}

void adamw_8bit_(const AdamWStep& step, const Tensor& master, const Tensor& value,
                 const Tensor& grad, const Moment& first, const Moment& second, const Tensor& clip,
                 const Tensor& skip, const Tensor& count) {
  kernels::adamw_8bit(rounded(step), master.data_ptr<float>(),
                      type_of(value.defined() ? value : master),
                      value.defined() ? value.data_ptr() : nullptr, type_of(grad),
                      grad.const_data_ptr(), coded(first), coded(second), first.lead,
                      clip.const_data_ptr<float>(), skip.const_data_ptr<float>(),
                      count.const_data_ptr<float>(), master.numel(), stream_of(master));
}

bool can_dequantize(const Nf4& matrix, const Tensor& out) {
  return fits(out, out.numel()) && kernels::vectorizable(matrix.codes.const_data_ptr(), 8);
}

void dequantize(const Nf4& matrix, const Tensor& out) {
  kernels::Nf4Scales scales;
  if (matrix.nested()) {
    scales.indices = matrix.scales.const_data_ptr<std::uint8_t>();
    scales.levels = matrix.levels.const_data_ptr<float>();
    scales.outer = matrix.outer.const_data_ptr<float>();
    scales.offset = matrix.offset.const_data_ptr<float>();
  } else {
    scales.plain = matrix.scales.const_data_ptr<float>();
  }
  kernels::nf4_dequantize(type_of(out), matrix.codes.const_data_ptr<std::uint8_t>(), scales,
                          out.mutable_data_ptr(), out.numel(), stream_of(out));
}

#else

namespace {
[[noreturn]] void none() {
  throw std::logic_error("this build has no CUDA kernels");
}
}  // namespace

bool can_norm(const Tensor&, const Tensor&) {
  return false;
}
std::tuple<Tensor, Tensor> rms_norm(const Tensor&, const Tensor&, double) {
  none();
}
std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const Tensor&, const Tensor&, const Tensor&,
                                                double) {
  none();
}
Tensor rms_norm_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         const Tensor&) {
  none();
}
bool can_swiglu(const Tensor&) {
  return false;
}
Tensor swiglu(const Tensor&) {
  none();
}
Tensor swiglu_backward_(Tensor&, const Tensor&) {
  none();
}
bool can_drop_out(const Tensor&) {
  return false;
}
void drop_out(const Tensor&, const Dropout&, const Tensor&) {
  none();
}
bool can_rotate(const Tensor&, std::int64_t) {
  return false;
}
void rotate_(const Tensor&, std::int64_t, std::int64_t, const Tensor&, const Tensor&, const Tensor&,
             bool) {
  none();
}
bool can_norm_heads(const Tensor&, const HeadNorms&) {
  return false;
}
void norm_heads_(const Tensor&, const HeadNorms&, const Rotation&, HeadNormsSaved*) {
  none();
}
void norm_heads_backward_(const Tensor&, const HeadNorms&, const Rotation&, const HeadNormsSaved&,
                          const Tensor&, const Tensor&) {
  none();
}
bool can_look_up(const Tensor&, const Tensor&) {
  return false;
}
Tensor look_up(const Tensor&, const Tensor&) {
  none();
}
bool can_cross_entropy(const Tensor&) {
  return false;
}
CrossEntropy cross_entropy_(const Tensor&, const Tensor&, const double*) {
  none();
}
TokenScores token_scores_(const Tensor&, const Tensor&, double, const Tensor*, const Tensor*) {
  none();
}
bool can_adamw(const Tensor&) {
  return false;
}
void adamw_(const AdamWStep&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
            const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  none();
}
void adamw_8bit_(const AdamWStep&, const Tensor&, const Tensor&, const Tensor&, const Moment&,
                 const Moment&, const Tensor&, const Tensor&, const Tensor&) {
  none();
}

bool can_dequantize(const Nf4&, const Tensor&) {
  return false;
}
void dequantize(const Nf4&, const Tensor&) {
  none();
}

#endif

}  // namespace mgpu::ops::on_gpu
