#include <algorithm>

#include "runtime/kernels/launch_check.cuh"
#include "runtime/kernels/philox.cuh"
#include "runtime/kernels/vector.cuh"

// One block per row. Every filter is a threshold on the logit, found by bisection over the bits of
// an order-preserving key. Probabilities are summed as integers, in units of 2^-40 of the largest
// one, so that no sum depends on the order. Sampling inverts the cumulative sum over the threads
// and then walks over the elements of the thread it has found.
namespace mgpu::kernels {
namespace {

using Mass = unsigned long long;

constexpr int kWalkers = 1024;  // the most threads of a block

// How a block walks over a row of logits: eight elements at a time from the start, single ones from
// `rest` on.
struct Walk {
  int packs = 0;
  int rest = 0;
  int vocab = 0;
};

// Calls f(x, i) for this thread's elements of the row, always in the same order.
template <class T, class F>
__device__ void for_elements(const T* row, const Walk& walk, F f) {
#pragma unroll 2
  for (int pack = threadIdx.x; pack < walk.packs; pack += blockDim.x) {
    const Eight e = load8(row + pack * 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) f(e.v[i], pack * 8 + i);
  }
  for (int i = walk.rest + threadIdx.x; i < walk.vocab; i += blockDim.x) f(to_float(row[i]), i);
}

constexpr int kCandidates = 8192;          // values of a row that are kept in shared memory
constexpr float kUnit = 1099511627776.0F;  // 2^40

// An order-preserving key: a larger number has a larger key; 0 and -0 have the same key.
__device__ unsigned key_of(float x) {
  const unsigned bits = __float_as_uint(x + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

// 64 random bits for a seed and a counter.
__device__ Mass random_bits(std::uint64_t seed, std::uint32_t counter) {
  const uint4 bits = philox(seed, counter);
  return Mass{bits.x} << 32 | bits.y;
}

struct Shared {
  float candidates[kCandidates];
  Mass sums[32];
  float maxima[32];
  int places[32];
  int count;
  Mass total;
};

// A block's row of logits and what the block has computed of it.
template <class T>
struct Row {
  const T* logits;
  Walk walk;
  float max;
  float inverse_temperature;
  int candidates;  // number in shared memory; -1: too many, read the logits

  __device__ Mass mass(float x) const {
    return static_cast<Mass>(__expf((x - max) * inverse_temperature) * kUnit);
  }
};

// Finds the largest logit and its first index. Returns false if the row contains NaN or its largest
// logit is not finite.
template <class T>
__device__ bool find_max(const T* logits, const Walk& walk, Shared& shared, float& max, int& place,
                         float& thread_max) {
  max = -INFINITY;
  place = walk.vocab;
  bool nan = false;
  for_elements(logits, walk, [&](float x, int i) {
    nan = nan || x != x;
    if (x > max) {
      max = x;
      place = i;
    }
  });
  thread_max = max;
  for (int round = 0; round < 2; ++round) {
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(0xffffffffU, max, step);
      const int other_place = __shfl_xor_sync(0xffffffffU, place, step);
      if (other > max || (other == max && other_place < place)) {
        max = other;
        place = other_place;
      }
    }
    if (round == 1) break;
    const unsigned lane = threadIdx.x % 32;
    if (lane == 0) {
      shared.maxima[threadIdx.x / 32] = max;
      shared.places[threadIdx.x / 32] = place;
    }
    __syncthreads();
    max = lane < blockDim.x / 32 ? shared.maxima[lane] : -INFINITY;
    place = lane < blockDim.x / 32 ? shared.places[lane] : walk.vocab;
  }
  return __syncthreads_or(nan ? 1 : 0) == 0 && isfinite(max);
}

// The sum over the block. `shared.sums` may be reused when it returns.
__device__ Mass sum_of(Mass value, Shared& shared) {
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  if (threadIdx.x % 32 == 0) shared.sums[threadIdx.x / 32] = value;
  __syncthreads();
  Mass sum = threadIdx.x % 32 < blockDim.x / 32 ? shared.sums[threadIdx.x % 32] : Mass{0};
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, offset);
  __syncthreads();
  return sum;
}

// The lowest bit in which the keys of two logits of a type can differ, unless all lower ones do.
template <class T>
constexpr int kLowestKeyBit = 0;
template <>
constexpr int kLowestKeyBit<bf16> = 16;
template <>
constexpr int kLowestKeyBit<f16> = 13;  // 10 bits of its mantissa, as fp32 has them

// The largest key t for which at_least(t) >= need, where at_least does not increase with t. Logits
// of 16 bits need only the upper bits of the key.
template <class T, class F>
__device__ unsigned largest_key(Mass need, F at_least) {
  unsigned key = 0;
  for (int bit = 31; bit >= kLowestKeyBit<T>; --bit) {
    const unsigned next = key | 1U << bit;
    if (at_least(next) >= need) key = next;
  }
  return key;
}

// The sum of f(x) over the logits with a key of at least t, from the candidates if there are any,
// else from all logits.
template <class T, class F>
__device__ Mass tally(const Row<T>& row, unsigned t, Shared& shared, F f) {
  Mass sum = 0;
  if (row.candidates >= 0) {
    for (int i = threadIdx.x; i < row.candidates; i += blockDim.x) {
      const float x = shared.candidates[i];
      if (key_of(x) >= t) sum += f(x);
    }
  } else {
    for_elements(row.logits, row.walk, [&](float x, int) {
      if (key_of(x) >= t) sum += f(x);
    });
  }
  return sum_of(sum, shared);
}

// Collects the logits with a key of at least t. Their order does not matter because only sums of
// integers are computed from them.
template <class T>
__device__ void collect(Row<T>& row, unsigned t, Shared& shared) {
  if (threadIdx.x == 0) shared.count = 0;
  __syncthreads();
  for_elements(row.logits, row.walk, [&](float x, int) {
    if (key_of(x) < t) return;
    const int at = atomicAdd(&shared.count, 1);
    if (at < kCandidates) shared.candidates[at] = x;
  });
  __syncthreads();
  row.candidates = shared.count <= kCandidates ? shared.count : -1;
  __syncthreads();
}

// A key below which no token can pass top_k and top_p.
template <class T>
__device__ unsigned first_guess(const Row<T>& row, float thread_max, int top_k, float top_p) {
  if (top_k > 0) {
    // At least k logits are at or above the k-th largest of the threads' own maxima.
    const unsigned key = key_of(thread_max);
    return largest_key<T>(static_cast<Mass>(top_k), [&](unsigned t) {
      return static_cast<Mass>(__syncthreads_count(key >= t ? 1 : 0));
    });
  }
  // All tokens below it together weigh at most vocab * exp(distance), less than top_p may cut off.
  const float vocab = static_cast<float>(row.walk.vocab);
  const float distance = logf((1.0F - top_p) * 0.5F / vocab) / row.inverse_temperature;
  return key_of(row.max + distance);
}

template <class T>
__device__ unsigned threshold_of(Row<T>& row, float thread_max, const Sampling& args,
                                 Shared& shared) {
  const int top_k = args.top_k < row.walk.vocab ? args.top_k : 0;
  unsigned threshold = 0;
  if (top_k > 0 || args.top_p < 1) {
    collect(row, first_guess(row, thread_max, top_k, args.top_p), shared);
  }
  if (top_k > 0) {
    threshold = largest_key<T>(static_cast<Mass>(top_k), [&](unsigned t) {
      return tally(row, t, shared, [](float) { return Mass{1}; });
    });
  }
  if (args.top_p < 1) {
    const auto mass = [&](float x) { return row.mass(x); };
    const Mass all = top_k > 0 ? tally(row, threshold, shared, mass) : shared.total;
    const double wanted = ceil(static_cast<double>(all) * args.top_p);
    Mass need = wanted < 1 ? Mass{1} : static_cast<Mass>(wanted);
    if (need > all) need = all;
    const unsigned key =
        largest_key<T>(need, [&](unsigned t) { return tally(row, t, shared, mass); });
    threshold = key > threshold ? key : threshold;
  }
  if (args.min_p > 0) {
    const unsigned key = key_of(row.max + logf(args.min_p) / row.inverse_temperature);
    threshold = key > threshold ? key : threshold;
  }
  const unsigned top = key_of(row.max);
  return threshold < top ? threshold : top;
}

// The sum over the threads before this one; `total` becomes the sum over all threads.
__device__ Mass sum_before(Mass mine, Shared& shared, Mass& total) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Mass sum = mine;
  for (int step = 1; step < 32; step *= 2) {
    const Mass below = __shfl_up_sync(0xffffffffU, sum, step);
    if (lane >= static_cast<unsigned>(step)) sum += below;
  }
  if (lane == 31) shared.sums[warp] = sum;
  __syncthreads();
  total = 0;
  Mass before = sum - mine;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) {
    if (w < warp) before += shared.sums[w];
    total += shared.sums[w];
  }
  return before;
}

// `mine` is the mass of all of this thread's elements.
template <class T>
__device__ void draw(const Row<T>& row, unsigned threshold, Mass mine, const Sampling& args,
                     Shared& shared) {
  const auto kept = [&](float x) { return key_of(x) >= threshold ? row.mass(x) : Mass{0}; };
  if (threshold > 0) {
    mine = 0;
    for_elements(row.logits, row.walk, [&](float x, int) { mine += kept(x); });
  }
  Mass total = 0;
  const Mass before = sum_before(mine, shared, total);
  const std::int64_t r = blockIdx.x;
  Mass point = __umul64hi(random_bits(static_cast<std::uint64_t>(args.seeds[r]),
                                      static_cast<std::uint32_t>(args.counters[r])),
                          total);
  if (point < before || point - before >= mine) return;
  point -= before;
  bool found = false;
  for_elements(row.logits, row.walk, [&](float x, int i) {
    const Mass mass = kept(x);
    if (!found && point < mass) {
      found = true;
      args.tokens[r] = i;
      {
        const double all = static_cast<double>(shared.total) / static_cast<double>(kUnit);
        args.log_probs[r] = (x - row.max) * row.inverse_temperature - static_cast<float>(log(all));
      }
    }
    point -= found ? Mass{0} : mass;
  });
}

template <class T>
__global__ void __launch_bounds__(kWalkers) sample_kernel(Sampling args, Walk walk) {
  __shared__ Shared shared;
  const std::int64_t r = blockIdx.x;
  const T* logits = static_cast<const T*>(args.logits) + r * args.stride;
  const bool greedy = args.temperature <= 0;
  float max, thread_max;
  int place;
  if (!find_max(logits, walk, shared, max, place, thread_max)) {
    if (threadIdx.x == 0) {
      args.tokens[r] = -1;
      args.log_probs[r] = __uint_as_float(0x7fc00000U);
    }
    return;
  }
  Row<T> row{logits, walk, max, greedy ? 1.0F : 1.0F / args.temperature, -1};
  Mass mine = 0;
  for_elements(logits, walk, [&](float x, int) { mine += row.mass(x); });
  const Mass all = sum_of(mine, shared);
  if (threadIdx.x == 0) shared.total = all;
  __syncthreads();
  if (!greedy) {
    draw(row, threshold_of(row, thread_max, args, shared), mine, args, shared);
  } else if (threadIdx.x == 0) {
    args.tokens[r] = place;
    args.log_probs[r] = -static_cast<float>(log(static_cast<double>(all) / kUnit));
  }
}

}  // namespace

void sample(Type type, const Sampling& args, std::int64_t rows, int vocab, cudaStream_t stream) {
  if (rows == 0) return;
  const bool fast = vectorizable(args.logits, args.stride);
  const int packs = fast ? vocab / 8 : 0;
  const int items = fast ? (vocab + 7) / 8 : vocab;
  const int threads = std::min((items + 31) / 32 * 32, kWalkers);
  with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    sample_kernel<T><<<static_cast<unsigned>(rows), static_cast<unsigned>(threads), 0, stream>>>(
        args, Walk{packs, packs * 8, vocab});
    check_launch("sample");
  });
}

}  // namespace mgpu::kernels
