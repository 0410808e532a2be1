#include "runtime/kernels/low_rank_on_gpu.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#ifdef MGPU_CUDA
#include <ATen/cuda/CUDAEvent.h>

#include "runtime/kernels/capability.hpp"
#include "runtime/kernels/gpu_tensors.hpp"
#endif

namespace mgpu::ops::on_gpu {

#ifdef MGPU_CUDA

namespace {

// Outputs and ranks come in these multiples; see kernels::LowRank. What is beyond the others has
// not been measured: there the products of cuBLAS are used.
constexpr std::int64_t kOutputs = 32, kRanks = 16, kHighestRank = 64, kMostRows = 512;

bool in_16_bits(const Tensor& x) {
  return x.is_cuda() && (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf) &&
         is_ampere_or_newer(x.device());
}

kernels::LowRank terms_of(const LowRank& added) {
  kernels::LowRank out;
  if (!added.low.defined()) return out;
  out.low = added.low.const_data_ptr();
  out.stride = added.low.stride(0);
  out.scale = static_cast<float>(added.scale);
  for (std::size_t i = 0; i < added.terms.size(); ++i) {
    const auto& term = added.terms[i];
    out.terms[i] = {term.b.const_data_ptr(), term.begin, term.b.size(0), term.column,
                    static_cast<int>(term.b.size(1))};
  }
  return out;
}

// The second stream of a device, and the events that order it with the current one. The same events
// serve every product: waiting refers to what was recorded last.
struct Beside {
  explicit Beside(at::Device device) : stream(c10::cuda::getStreamFromPool(true, device.index())) {}

  c10::cuda::CUDAStream stream;
  at::cuda::CUDAEvent begin, end;
};

Beside& beside(at::Device device) {
  static thread_local std::map<c10::DeviceIndex, Beside> all;
  return all.try_emplace(device.index(), device).first->second;
}

}  // namespace

bool can_low_rank_product(const Tensor& x, const Tensor& a) {
  return in_16_bits(x) && fits(x, x.size(1)) && fits(a, a.size(1)) &&
         a.scalar_type() == x.scalar_type() && x.size(1) % kOutputs == 0 &&
         a.size(0) % kRanks == 0 && x.size(0) <= kMostRows;
}

LowRankProduct::LowRankProduct(const Tensor& x, const Tensor& a) {
  // Allocated for the current stream, which waits in take() before the memory can be used again.
  low_ = at::empty({x.size(0), a.size(0)}, x.options());
  auto& side = beside(x.device());
  side.begin.record(c10::cuda::getCurrentCUDAStream(x.device().index()));
  side.begin.block(side.stream);
  kernels::low_rank_product(type_of(x), x.const_data_ptr(), a.const_data_ptr(), low_.data_ptr(),
                            x.size(0), a.size(0), x.size(1), side.stream.stream());
  side.end.record(side.stream);
}

LowRankProduct::~LowRankProduct() {
  // An exception came before take(): the memory must not be used again before the product is done.
  if (!low_.defined()) return;
  const auto current = c10::cuda::getCurrentCUDAStream(low_.device().index());
  cudaStreamWaitEvent(current.stream(), beside(low_.device()).end.event());
}

Tensor LowRankProduct::take() {
  beside(low_.device()).end.block(c10::cuda::getCurrentCUDAStream(low_.device().index()));
  return std::move(low_);
}

bool can_add_low_rank(const Tensor& x, const LowRank& added, std::int64_t width) {
  return in_16_bits(x) && width % kOutputs == 0 && added.terms.size() <= kernels::kMostTerms &&
         std::ranges::all_of(added.terms, [&](const LowRank::Term& term) {
           const auto rank = term.b.size(1);
           return fits(term.b, rank) && term.b.scalar_type() == x.scalar_type() &&
                  rank % kRanks == 0 && rank <= kHighestRank && term.column % kRanks == 0 &&
                  term.begin % kOutputs == 0 && term.b.size(0) % kOutputs == 0;
         });
}

bool can_add(const Tensor& y, const LowRank& added) {
  const auto& low = added.low;
  return fits(y, y.size(1)) && on_gpu::can_add_low_rank(y, added, y.size(1)) &&
         (!low.defined() ||
          (low.scalar_type() == y.scalar_type() && low.size(0) == y.size(0) && low.stride(1) == 1));
}

void add_low_rank_(const Tensor& y, const LowRank& added) {
  kernels::add_low_rank(type_of(y), y.data_ptr(), terms_of(added), y.size(0), y.size(1),
                        stream_of(y));
}

bool can_swiglu(const Tensor& gate_up, const LowRank& added) {
  return can_add(gate_up, added) && gate_up.size(1) / 2 % kOutputs == 0;
}

Tensor swiglu(const Tensor& gate_up, const LowRank& added) {
  const auto rows = gate_up.size(0), width = gate_up.size(1) / 2;
  Tensor out = at::empty({rows, width}, gate_up.options());
  kernels::swiglu(type_of(gate_up), gate_up.const_data_ptr(), terms_of(added), out.data_ptr(), rows,
                  width, stream_of(gate_up));
  return out;
}

bool can_norm(const Tensor& x, const LowRank& added, const Tensor& residual, const Tensor& w) {
  const auto width = x.size(1);
  return can_add(x, added) && fits(residual, width) && fits(w, width) &&
         residual.scalar_type() == x.scalar_type() && w.scalar_type() == x.scalar_type() &&
         width <= kernels::kWidestLowRankNorm &&
         (!added.low.defined() || (added.terms.size() == 1 && added.terms[0].begin == 0 &&
                                   added.terms[0].b.size(0) == width));
}

std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const LowRank& added,
                                        const Tensor& residual, const Tensor& w, double eps) {
  Tensor sum = at::empty_like(x), y = at::empty_like(x);
  kernels::rms_norm(type_of(x), x.const_data_ptr(), terms_of(added), residual.const_data_ptr(),
                    w.const_data_ptr(), sum.data_ptr(), y.data_ptr(), {x.size(0), x.size(1), eps},
                    stream_of(x));
  return {sum, y};
}

bool can_rotate_into_pages(const Tensor& qkv, const LowRank& added, const HeadShape& shape,
                           const Pages& pages) {
  return can_add(qkv, added) && shape.head_dim % (2 * kOutputs) == 0 &&
         fits(pages.keys, shape.head_dim) && fits(pages.values, shape.head_dim);
}

void rotate_into_pages(const Tensor& qkv, const LowRank& added, const HeadShape& shape,
                       const Rotation& rotation, const Tensor& slots, const Pages& pages) {
  kernels::rotate_into_pages(
      type_of(qkv),
      {.qkv = qkv.data_ptr(),
       .heads = static_cast<int>(shape.heads),
       .kv_heads = static_cast<int>(shape.kv_heads),
       .head_dim = static_cast<int>(shape.head_dim),
       .slots = slots.const_data_ptr<std::int64_t>(),
       .keys = pages.keys.data_ptr(),
       .values = pages.values.data_ptr()},
      terms_of(added),
      {rotation.cos.const_data_ptr<float>(), rotation.sin.const_data_ptr<float>(),
       rotation.positions.const_data_ptr<std::int32_t>()},
      qkv.size(0), stream_of(qkv));
}

#else

namespace {
[[noreturn]] void no_low_rank_kernels() {
  throw std::logic_error("this build has no CUDA kernels");
}
}  // namespace

bool can_low_rank_product(const Tensor&, const Tensor&) {
  return false;
}
LowRankProduct::LowRankProduct(const Tensor&, const Tensor&) {
  no_low_rank_kernels();
}
LowRankProduct::~LowRankProduct() = default;
Tensor LowRankProduct::take() {
  no_low_rank_kernels();
}
bool can_add_low_rank(const Tensor&, const LowRank&, std::int64_t) {
  return false;
}
bool can_add(const Tensor&, const LowRank&) {
  return false;
}
void add_low_rank_(const Tensor&, const LowRank&) {
  no_low_rank_kernels();
}
bool can_swiglu(const Tensor&, const LowRank&) {
  return false;
}
Tensor swiglu(const Tensor&, const LowRank&) {
  no_low_rank_kernels();
}
bool can_norm(const Tensor&, const LowRank&, const Tensor&, const Tensor&) {
  return false;
}
std::tuple<Tensor, Tensor> add_rms_norm(const Tensor&, const LowRank&, const Tensor&, const Tensor&,
                                        double) {
  no_low_rank_kernels();
}
bool can_rotate_into_pages(const Tensor&, const LowRank&, const HeadShape&, const Pages&) {
  return false;
}
void rotate_into_pages(const Tensor&, const LowRank&, const HeadShape&, const Rotation&,
                       const Tensor&, const Pages&) {
  no_low_rank_kernels();
}

#endif

}  // namespace mgpu::ops::on_gpu
