#include "runtime/kernels/fp8.cuh"
#include "runtime/kernels/launch_check.cuh"

namespace mgpu::kernels {
namespace {

using namespace fp8;

constexpr int kAtOnce = 4;  // rows that a thread reads before it uses one
constexpr int kTileRows = kRowsPerPass * kAtOnce;

// A thread block has kTileRows rows and 128 columns; 16 threads share a row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const T* __restrict__ x, Fp8RowsOut out, Fp8RowsShape s, int column_blocks) {
  const int lane = threadIdx.x % kLanes;
  const std::int64_t block = blockIdx.x % column_blocks;
  const std::int64_t column = block * kBlock + lane * 8;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x / column_blocks) * kTileRows + threadIdx.x / kLanes;
  Eight values[kAtOnce];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const std::int64_t row = first + i * kRowsPerPass;
    values[i] = row < s.rows ? load8(x + row * s.columns + column) : Eight{};
  }
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const std::int64_t row = first + i * kRowsPerPass;
    const auto scale = scale_of(largest_among<kLanes>(largest_of(values[i])));
    if (row >= s.padded) continue;  // after the threads of the warp have met
    store_codes(out.codes + row * s.columns + column, values[i], scale.inverse);
    if (lane == 0) out.scales[block * s.padded + row] = scale.scale;
  }
}

// A thread block has one block of the matrix: each thread has 8 of its 128 rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    blocks_kernel(const T* __restrict__ weight, std::uint8_t* __restrict__ codes,
                  float* __restrict__ scales, Fp8Shape s, int column_blocks) {
  constexpr int kRows = kBlock / kRowsPerPass;
  __shared__ unsigned shared[kThreads / 32];
  const std::int64_t row_block = blockIdx.x / column_blocks, block = blockIdx.x % column_blocks;
  const std::int64_t from = (row_block * kBlock + threadIdx.x / kLanes) * s.columns +
                            block * kBlock + threadIdx.x % kLanes * 8;
  Eight values[kRows];
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) values[i] = load8(weight + from + i * kRowsPerPass * s.columns);
#pragma unroll
  for (int i = 0; i < kRows; ++i) largest = max(largest, largest_of(values[i]));
  largest = largest_among<32>(largest);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (unsigned other : shared) largest = max(largest, other);
  const auto scale = scale_of(largest);
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    store_codes(codes + from + i * kRowsPerPass * s.columns, values[i], scale.inverse);
  if (threadIdx.x == 0) scales[row_block * s.scale_stride + block] = scale.scale;
  // What pads the scales to their stride.
  if (block == column_blocks - 1 && threadIdx.x < s.scale_stride - column_blocks)
    scales[row_block * s.scale_stride + column_blocks + threadIdx.x] = 0;
}

// Transposes 4 x 4 bytes: words[i] has row i, and afterwards column i.
__device__ void transpose4(unsigned (&words)[4]) {
  const unsigned a = __byte_perm(words[0], words[1], 0x5140);  // 00 10 01 11
  const unsigned b = __byte_perm(words[2], words[3], 0x5140);  // 20 30 21 31
  const unsigned c = __byte_perm(words[0], words[1], 0x7362);  // 02 12 03 13
  const unsigned d = __byte_perm(words[2], words[3], 0x7362);  // 22 32 23 33
  words[0] = __byte_perm(a, b, 0x5410);
  words[1] = __byte_perm(a, b, 0x7632);
  words[2] = __byte_perm(c, d, 0x5410);
  words[3] = __byte_perm(c, d, 0x7632);
}

// A thread block has one block of the matrix. A thread turns squares of 4 x 4 codes in registers,
// so that memory is read and written in words, a row of 128 codes by each warp. The place of a word
// in shared memory is such that neither the threads that write columns 4, 8, 12, ... nor those that
// read a row meet in a bank.
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const std::uint8_t* __restrict__ codes, const float* __restrict__ scales,
                     Fp8Shape s, Fp8Columns to, int column_blocks) {
  constexpr int kWords = kBlock / 4, kWarps = kThreads / 32;
  __shared__ unsigned tile[kBlock][kWords];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t row_block = blockIdx.x / column_blocks, block = blockIdx.x % column_blocks;
  const std::uint8_t* from = codes + row_block * kBlock * s.columns + block * kBlock + 4 * lane;
  unsigned words[kWords / kWarps][4];
#pragma unroll
  for (int i = 0; i < kWords / kWarps; ++i)
#pragma unroll
    for (int row = 0; row < 4; ++row)
      words[i][row] =
          *reinterpret_cast<const unsigned*>(from + ((warp + i * kWarps) * 4 + row) * s.columns);
#pragma unroll
  for (int i = 0; i < kWords / kWarps; ++i) {
    transpose4(words[i]);
#pragma unroll
    for (int column = 0; column < 4; ++column)
      tile[4 * lane + column][(warp + i * kWarps) ^ lane] = words[i][column];
  }
  __syncthreads();
  std::uint8_t* out = to.codes + block * kBlock * to.code_stride + row_block * kBlock + 4 * lane;
#pragma unroll
  for (int i = 0; i < kBlock / kWarps; ++i) {
    const int column = warp + i * kWarps;
    *reinterpret_cast<unsigned*>(out + column * to.code_stride) = tile[column][lane ^ column / 4];
  }
  if (threadIdx.x == 0)
    to.scales[block * to.scale_stride + row_block] = scales[row_block * s.scale_stride + block];
}

}  // namespace

void quantize_rows(Type type, const void* x, const Fp8RowsOut& out, const Fp8RowsShape& s,
                   cudaStream_t stream) {
  if (s.padded == 0 || s.columns == 0) return;
  const auto column_blocks = static_cast<int>(s.columns / kBlock);
  const auto grid = blocks_for((s.padded + kTileRows - 1) / kTileRows * column_blocks);
  with_type(type, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    rows_kernel<T><<<grid, kThreads, 0, stream>>>(static_cast<const T*>(x), out, s, column_blocks);
    check_launch("quantize_rows");
  });
}

void quantize_blocks(Type type, const void* weight, std::uint8_t* codes, float* scales,
                     const Fp8Shape& s, cudaStream_t stream) {
  if (s.rows == 0 || s.columns == 0) return;
  const auto column_blocks = static_cast<int>(s.columns / kBlock);
  with_type(type, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    blocks_kernel<T><<<blocks_for(s.rows / kBlock * column_blocks), kThreads, 0, stream>>>(
        static_cast<const T*>(weight), codes, scales, s, column_blocks);
    check_launch("quantize_blocks");
  });
}

void transpose_fp8(const std::uint8_t* codes, const float* scales, const Fp8Shape& s,
                   const Fp8Columns& to, cudaStream_t stream) {
  if (s.rows == 0 || s.columns == 0) return;
  const auto column_blocks = static_cast<int>(s.columns / kBlock);
  transpose_kernel<<<blocks_for(s.rows / kBlock * column_blocks), kThreads, 0, stream>>>(
      codes, scales, s, to, column_blocks);
  check_launch("transpose_fp8");
}

}  // namespace mgpu::kernels
