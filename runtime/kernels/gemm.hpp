#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// Matrix products on a GPU as cuBLAS sees them, and the choice between its algorithms.
namespace mgpu::ops {

using at::Tensor;

// out = alpha a b + beta out, plus `bias` in each row if it is defined; then alpha is 1 and beta 0.
// With beta 0, `out` may be uninitialized. Its type is that of a and b, or fp32.
struct GemmOperands {
  Tensor out, a, b;
  Tensor bias = {};
  double alpha = 1, beta = 0;
};

// What the choice of an algorithm depends on.
struct Gemm {
  std::int64_t rows = 0, columns = 0;  // of out
  std::int64_t depth = 0;              // columns of a
  // Elements from one row to the next, or from one column to the next if the matrix is transposed.
  std::int64_t a_stride = 0, b_stride = 0, out_stride = 0;
  bool a_transposed = false, b_transposed = false;
  at::ScalarType type = at::kBFloat16, out_type = at::kBFloat16;
  bool bias = false;
  bool accumulates = false;  // beta is not 0

  double flops() const;

  friend auto operator<=>(const Gemm&, const Gemm&) = default;
};

// Nothing if the algorithms that cuBLAS offers for a Gemm may not fit: for operands that are not in
// 16 bits, or at addresses that are no multiples of 16 bytes.
std::optional<Gemm> gemm_of(const GemmOperands& operands);

// With the algorithm that PyTorch and cuBLAS choose; on any device.
void multiply_as_pytorch(const GemmOperands& operands);

// An algorithm of cuBLAS: opaque words, with a meaning for one version of the library only.
struct GemmAlgorithm {
  std::array<std::uint64_t, 8> words{};
  std::uint64_t workspace = 0;  // bytes

  friend bool operator==(const GemmAlgorithm&, const GemmAlgorithm&) = default;
};

// A product whose operands are in memory, to be timed.
class GemmTrial {
 public:
  virtual ~GemmTrial() = default;
  // The time of one call, as a mean of some; null: as PyTorch computes it. Nothing if it fails.
  virtual std::optional<double> seconds(const GemmAlgorithm* algorithm) = 0;
};

// A library of matrix products on one device.
class GemmLibrary {
 public:
  virtual ~GemmLibrary() = default;
  virtual std::string version() const = 0;  // with its name
  virtual std::string device() const = 0;   // the model of the GPU
  // Up to `most` algorithms, those first that the library expects to be fast.
  virtual std::vector<GemmAlgorithm> candidates(const Gemm& gemm, int most) = 0;
  // Null if there is not enough memory.
  virtual std::unique_ptr<GemmTrial> trial(const Gemm& gemm) = 0;
  // Queues the product.
  virtual void run(const Gemm& gemm, const GemmAlgorithm& algorithm,
                   const GemmOperands& operands) = 0;
};

// Times every candidate in turn, in several rounds, and returns the number of the one with the
// smallest median. Number 0, which needs no choice, wins unless another is faster by more than the
// times of two runs differ. `time` returns the seconds of a call, or nothing if the candidate
// cannot be used.
std::size_t fastest(std::size_t candidates,
                    const std::function<std::optional<double>(std::size_t)>& time);

// The fastest algorithm for this product; nothing if that is how PyTorch computes it.
std::optional<GemmAlgorithm> fastest_algorithm(GemmLibrary& library, const Gemm& gemm);

}  // namespace mgpu::ops
