#include "runtime/kernels/gemm.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <limits>

namespace mgpu::ops {
namespace {

constexpr std::int64_t kAlignment = 16;  // bytes
constexpr int kCandidates = 8;
constexpr int kRounds = 7;
constexpr double kWorthwhile = 0.01;  // of the time; medians of equal calls differ by less

bool aligned(const Tensor& x, std::int64_t stride) {
  const auto address = reinterpret_cast<std::uintptr_t>(x.const_data_ptr());
  return address % kAlignment == 0 && stride * x.element_size() % kAlignment == 0;
}

struct Storage {
  bool transposed = false;
  std::int64_t stride = 0;
};

std::optional<Storage> storage_of(const Tensor& x) {
  if (x.dim() != 2 || x.numel() == 0) return {};
  for (const bool transposed : {false, true}) {
    const auto stride = x.stride(transposed ? 1 : 0);
    if (x.stride(transposed ? 0 : 1) == 1 && stride >= x.size(transposed ? 0 : 1))
      return aligned(x, stride) ? std::optional(Storage{transposed, stride}) : std::nullopt;
  }
  return {};
}

bool types_fit(const GemmOperands& o) {
  const auto type = o.a.scalar_type(), out = o.out.scalar_type();
  return (type == at::kBFloat16 || type == at::kHalf) && o.b.scalar_type() == type &&
         (out == type || out == at::kFloat) &&
         (!o.bias.defined() || (o.bias.scalar_type() == out && out == type));
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

double Gemm::flops() const {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(columns) *
         static_cast<double>(depth);
}

std::optional<Gemm> gemm_of(const GemmOperands& o) {
  if (!types_fit(o)) return {};
  const auto a = storage_of(o.a), b = storage_of(o.b), out = storage_of(o.out);
  if (!a || !b || !out || out->transposed) return {};
  if (o.bias.defined() && (!o.bias.is_contiguous() || !aligned(o.bias, 0))) return {};
  return Gemm{.rows = o.out.size(0),
              .columns = o.out.size(1),
              .depth = o.a.size(1),
              .a_stride = a->stride,
              .b_stride = b->stride,
              .out_stride = out->stride,
              .a_transposed = a->transposed,
              .b_transposed = b->transposed,
              .type = o.a.scalar_type(),
              .out_type = o.out.scalar_type(),
              .bias = o.bias.defined(),
              .accumulates = o.beta != 0};
}

void multiply_as_pytorch(const GemmOperands& o) {
  Tensor out = o.out;
  if (o.bias.defined())
    at::addmm_out(out, o.bias, o.a, o.b);
  else if (out.scalar_type() != o.a.scalar_type())
    at::addmm_out(out, out, o.a, o.b, out.scalar_type(), o.beta, o.alpha);
  else if (o.alpha == 1 && o.beta == 0)
    at::mm_out(out, o.a, o.b);
  else
    at::addmm_out(out, out, o.a, o.b, o.beta, o.alpha);
}

std::size_t fastest(std::size_t candidates,
                    const std::function<std::optional<double>(std::size_t)>& time) {
  std::vector<std::vector<double>> times(candidates);
  std::vector<bool> usable(candidates);
  // The first call of each loads its kernel, and does not count.
  for (std::size_t i = 0; i < candidates; ++i) usable[i] = time(i).has_value();
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < candidates; ++i) {
      if (!usable[i]) continue;
      const auto seconds = time(i);
      usable[i] = seconds.has_value();
      if (seconds) times[i].push_back(*seconds);
    }
  if (candidates == 0 || !usable[0]) return 0;
  std::size_t best = 0;
  double least = median(times[0]) * (1 - kWorthwhile);
  for (std::size_t i = 1; i < candidates; ++i) {
    if (!usable[i]) continue;
    if (const double seconds = median(times[i]); seconds < least) {
      best = i;
      least = seconds;
    }
  }
  return best;
}

std::optional<GemmAlgorithm> fastest_algorithm(GemmLibrary& library, const Gemm& gemm) {
  const auto algorithms = library.candidates(gemm, kCandidates);
  if (algorithms.empty()) return {};
  const auto trial = library.trial(gemm);
  if (!trial) return {};
  const auto number = fastest(algorithms.size() + 1, [&](std::size_t i) {
    return trial->seconds(i == 0 ? nullptr : &algorithms[i - 1]);
  });
  if (number == 0) return {};
  return algorithms[number - 1];
}

}  // namespace mgpu::ops
