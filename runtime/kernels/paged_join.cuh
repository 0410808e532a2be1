#pragma once

#include <cfloat>

#include "runtime/kernels/early_launch.cuh"
#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/vector.cuh"

// Shared by the paged attention kernels: how a sequence is split over blocks, and how the results
// of the splits are combined.
namespace mgpu::kernels {

struct Share {
  int begin, end;
};

// The range of a sequence's tokens that one split handles. It begins at a page boundary.
template <int kPage>
__device__ inline Share share_of(int length, int splits, int split) {
  const int share = ((length + splits - 1) / splits + kPage - 1) / kPage * kPage;
  return {split * share, min(length, (split + 1) * share)};
}

// The sums of weighted values of a block's parts, each relative to its own largest logit.
template <int kParts, int kHeads, int kDim>
struct Joined {
  float largest[kParts][kHeads], total[kParts][kHeads];
  float value[kParts][kHeads][kDim];

  // Writes the result or, with several splits, this block's partial result. All threads of the
  // block must call it.
  template <class T>
  __device__ void write_result(const PagedAttention& a, int heads, std::int64_t sequence,
                               int kv_head, int split) const {
    for (int item = threadIdx.x; item < heads * kDim; item += blockDim.x) {
      const int h = item / kDim, d = item % kDim;
      float top = -FLT_MAX;
      for (int p = 0; p < kParts; ++p) top = fmaxf(top, largest[p][h]);
      float all = 0, sum = 0;
      for (int p = 0; p < kParts; ++p) {
        const float weight = __expf(largest[p][h] - top);
        all += total[p][h] * weight;
        sum += value[p][h][d] * weight;
      }
      const std::int64_t row = sequence * a.kv_heads * heads + kv_head * heads + h;
      if (a.splits == 1) {
        static_cast<T*>(a.out)[row * kDim + d] = from_float<T>(sum / all);
        continue;
      }
      const std::int64_t part = row * a.splits + split;
      a.part_values[part * kDim + d] = sum;
      if (d == 0) {
        a.part_largest[part] = top;
        a.part_totals[part] = all;
      }
    }
  }
};

// Combines the splits of one query head. One block per row.
template <class T>
__global__ void join_kernel(PagedAttention a, int head_dim) {
  begin_after_earlier_kernels();
  const std::int64_t row = blockIdx.x;
  float top = -FLT_MAX;
  for (int s = 0; s < a.splits; ++s) top = fmaxf(top, a.part_largest[row * a.splits + s]);
  for (int d = threadIdx.x; d < head_dim; d += blockDim.x) {
    float total = 0, value = 0;
    for (int s = 0; s < a.splits; ++s) {
      const std::int64_t part = row * a.splits + s;
      const float weight = __expf(a.part_largest[part] - top);
      total += a.part_totals[part] * weight;
      value += a.part_values[part * head_dim + d] * weight;
    }
    static_cast<T*>(a.out)[row * head_dim + d] = from_float<T>(value / total);
  }
}

template <class T>
void join_splits(const PagedAttention& a, int heads, int head_dim, std::int64_t sequences,
                 cudaStream_t stream) {
  if (a.splits <= 1) return;
  launch_early(join_kernel<T>,
               {.blocks = dim3(static_cast<unsigned>(sequences * a.kv_heads * heads)),
                .threads = dim3(static_cast<unsigned>(head_dim))},
               stream, a, head_dim);
  check_launch("join");
}

}  // namespace mgpu::kernels
