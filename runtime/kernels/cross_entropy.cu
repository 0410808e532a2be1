#include <cfloat>

#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/vector.cuh"

namespace mgpu::kernels {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;

// The running state of a pass over logits: the largest logit m and its index, and the sums of exp(x
// - m) and of x exp(x - m).
struct Running {
  float largest = -FLT_MAX;
  float sum = 0;
  float weighted = 0;
  std::int32_t where = 0x7fffffff;

  __device__ void take(float x, std::int32_t at) {
    if (x > largest) {
      const float shrink = __expf(largest - x);
      sum = sum * shrink + 1.0F;
      weighted = weighted * shrink + x;
      largest = x;
      where = at;
    } else {
      const float e = __expf(x - largest);
      sum += e;
      weighted += x * e;
    }
  }

  __device__ void merge(const Running& other) {
    const float m = fmaxf(largest, other.largest);
    const float mine = __expf(largest - m);
    const float theirs = __expf(other.largest - m);
    if (other.largest > largest || (other.largest == largest && other.where < where))
      where = other.where;
    sum = sum * mine + other.sum * theirs;
    weighted = weighted * mine + other.weighted * theirs;
    largest = m;
  }
};

__device__ Running shuffled(const Running& r, int offset) {
  Running o;
  o.largest = __shfl_xor_sync(0xffffffffU, r.largest, offset);
  o.sum = __shfl_xor_sync(0xffffffffU, r.sum, offset);
  o.weighted = __shfl_xor_sync(0xffffffffU, r.weighted, offset);
  o.where = __shfl_xor_sync(0xffffffffU, r.where, offset);
  return o;
}

__device__ Running over_block(Running r) {
  __shared__ Running shared[kWarps];
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) r.merge(shuffled(r, offset));
  if (lane == 0) shared[threadIdx.x / 32] = r;
  __syncthreads();
  r = shared[lane];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) r.merge(shuffled(r, offset));
  return r;
}

// d/dx of slope * log p[target] + entropy_slope * entropy, for a logit x of probability p.
struct Gradient {
  float slope, entropy_slope, log_sum, entropy, sharpness;

  __device__ float of(float x, bool is_target) const {
    const float log_p = x - log_sum;
    const float p = __expf(log_p);
    const float g = (is_target ? slope : 0.0F) - slope * p - entropy_slope * p * (log_p + entropy);
    return g * sharpness;
  }
};

// One block per row. The row is read twice and written once.
template <class T, bool kVector>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(T* __restrict__ logits, CrossEntropyIn in, CrossEntropyOut out,
                         std::int64_t vocab) {
  T* row = logits + static_cast<std::int64_t>(blockIdx.x) * vocab;
  const std::int32_t target = in.targets[blockIdx.x];
  Running r;
  if (kVector) {
    for (std::int64_t i = threadIdx.x * 8; i < vocab; i += kThreads * 8) {
      const Eight e = load8(row + i);
#pragma unroll
      for (int k = 0; k < 8; ++k) r.take(e.v[k] * in.sharpness, static_cast<std::int32_t>(i + k));
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < vocab; i += kThreads)
      r.take(to_float(row[i]) * in.sharpness, static_cast<std::int32_t>(i));
  }
  r = over_block(r);
  const float log_sum = logf(r.sum) + r.largest;
  const float entropy = log_sum - r.weighted / r.sum;
  const bool has_target = target >= 0;
  if (threadIdx.x == 0) {
    const float at_target = has_target ? to_float(row[target]) * in.sharpness : 0.0F;
    out.loss[blockIdx.x] = has_target ? log_sum - at_target : 0.0F;
    if (out.correct != nullptr) out.correct[blockIdx.x] = has_target && r.where == target;
    out.entropy[blockIdx.x] = has_target ? entropy : 0.0F;
  }
  if (!in.overwrite) return;
  __syncthreads();  // the target's logit has been read
  Gradient gradient{-in.scale, 0, log_sum, entropy, in.sharpness};
  if (in.slopes != nullptr) gradient.slope = in.slopes[blockIdx.x];
  if (in.entropy_slopes != nullptr) gradient.entropy_slope = in.entropy_slopes[blockIdx.x];
  if (!has_target) gradient.slope = gradient.entropy_slope = 0;
  if (kVector) {
    for (std::int64_t i = threadIdx.x * 8; i < vocab; i += kThreads * 8) {
      Eight e = load8(row + i);
#pragma unroll
      for (int k = 0; k < 8; ++k) e.v[k] = gradient.of(e.v[k] * in.sharpness, i + k == target);
      store8(row + i, e);
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < vocab; i += kThreads)
      row[i] = from_float<T>(gradient.of(to_float(row[i]) * in.sharpness, i == target));
  }
}

}  // namespace

void cross_entropy(Type type, void* logits, const CrossEntropyIn& in, const CrossEntropyOut& out,
                   std::int64_t rows, std::int64_t vocab, cudaStream_t stream) {
  if (rows == 0) return;
  with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const auto launch = [&](auto kernel) {
      kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(static_cast<T*>(logits), in, out,
                                                                   vocab);
      check_launch("cross_entropy");
    };
    if (vectorizable(logits, vocab)) {
      launch(cross_entropy_kernel<T, true>);
    } else {
      launch(cross_entropy_kernel<T, false>);
    }
  });
}

}  // namespace mgpu::kernels
