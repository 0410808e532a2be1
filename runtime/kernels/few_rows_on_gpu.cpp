#include "runtime/kernels/few_rows_on_gpu.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#if defined(MGPU_CUDA) && defined(MGPU_HOPPER)
#include <ATen/cuda/CUDAContextLight.h>

#include "runtime/kernels/capability.hpp"
#include "runtime/kernels/few_rows.hpp"
#include "runtime/kernels/gpu_tensors.hpp"
#endif

namespace mgpu::ops::on_gpu {

using at::Tensor;

#if defined(MGPU_CUDA) && defined(MGPU_HOPPER)

namespace {

constexpr int kHopper = 90;  // newer GPUs have other instructions

// Measured on an H200: beyond, cuBLAS is as fast. Deep products need clusters of many blocks.
constexpr std::int64_t kMostRows = 64, kDeep = 4096, kMostRowsOfDeep = 32;

kernels::FewRows product_of(const FewRows& p) {
  kernels::FewRows product{.x = p.x.const_data_ptr(),
                           .w = p.w.const_data_ptr(),
                           .gated = p.gated,
                           .rows = p.x.size(0),
                           .depth = p.x.size(1),
                           .outputs = p.w.size(0) / (p.gated ? 2 : 1)};
  if (p.bias.defined()) product.bias = p.bias.const_data_ptr();
  if (p.a.defined()) {
    product.a = p.a.const_data_ptr();
    product.ranks = p.a.size(0);
  }
  return product;
}

// About how long a plan takes, in microseconds, fitted to measurements on an H200.
double estimate(const kernels::FewRows& p, const kernels::FewRowsPlan& plan, double busy) {
  constexpr double kOfBlock = 43e3, kOfMemory = 4.2e6, kOfCluster = 60e3;  // bytes a microsecond
  const auto rows = static_cast<double>(p.rows), outputs = plan.width * plan.groups * 1.;
  const double chunks = std::ceil(static_cast<double>(p.depth) / 64 / plan.splits);
  const double read = chunks * 128 * (outputs + rows);
  const double weights =
      2. * static_cast<double>(p.depth * (p.outputs * (p.gated ? 2 : 1) + p.ranks));
  // Clusters start late, the later the more blocks they have.
  const double start = plan.splits == 1 ? 0 : plan.splits == 2 ? .8 : plan.splits == 4 ? 2 : 3.2;
  const double sums = plan.splits == 1 ? 0 : rows * outputs * 4 / kOfCluster;
  // Where multiprocessors are left, the next kernel can begin.
  return std::max(read / kOfBlock, weights / kOfMemory) + start + sums + 4 * busy;
}

// The fastest plan whose blocks run all at the same time, if there is one.
std::optional<kernels::FewRowsPlan> plan_for(const kernels::FewRows& p, int multiprocessors) {
  std::optional<kernels::FewRowsPlan> best;
  double shortest = 0;
  for (const int width : kernels::kFewRowsWidths)
    for (const int groups : {1, 2})
      for (const int splits : {1, 2, 4, 8}) {
        const kernels::FewRowsPlan plan{.width = width, .groups = groups, .splits = splits};
        const auto block = width * groups / (p.gated ? 2 : 1);
        const auto blocks =
            ((p.outputs + block - 1) / block + (p.ranks + block - 1) / block) * splits;
        // The multiprocessors that clusters can use: those of a part of the GPU together.
        const auto slots = splits < 4 ? multiprocessors : multiprocessors * 10 / 11;
        if (blocks > slots || !kernels::can_few_rows(p, plan)) continue;
        const double time =
            estimate(p, plan, static_cast<double>(blocks) / static_cast<double>(multiprocessors));
        if (best && time >= shortest) continue;
        best = plan;
        shortest = time;
      }
  return best;
}

std::optional<kernels::FewRowsPlan> plan_for(const FewRows& p) {
  const auto& x = p.x;
  if (!fits(x, x.size(1)) || x.scalar_type() == at::kFloat || capability_of(x.device()) != kHopper)
    return {};
  const auto same = [&](const Tensor& other, std::int64_t width) {
    return !other.defined() || (fits(other, width) && other.scalar_type() == x.scalar_type());
  };
  if (!same(p.w, x.size(1)) || !same(p.bias, 8) || !same(p.a, x.size(1))) return {};
  if (x.size(0) < 1 || x.size(0) > (x.size(1) > kDeep ? kMostRowsOfDeep : kMostRows)) return {};
  return plan_for(product_of(p),
                  at::cuda::getDeviceProperties(x.device().index())->multiProcessorCount);
}

}  // namespace

bool can_few_rows(const FewRows& p) {
  return plan_for(p).has_value();
}

std::pair<Tensor, Tensor> few_rows(const FewRows& p) {
  auto product = product_of(p);
  Tensor y = at::empty({product.rows, product.outputs}, p.x.options()), low;
  product.y = y.data_ptr();
  if (p.a.defined()) {
    low = at::empty({product.rows, product.ranks}, p.x.options());
    product.low = low.data_ptr();
  }
  auto plan = plan_for(p).value();
  plan.early = p.early;
  kernels::few_rows(type_of(p.x), product, plan, stream_of(p.x));
  return {y, low};
}

#else

bool can_few_rows(const FewRows&) {
  return false;
}
std::pair<Tensor, Tensor> few_rows(const FewRows&) {
  throw std::logic_error("this build has no kernels for GPUs of compute capability 9.0");
}

#endif

}  // namespace mgpu::ops::on_gpu
