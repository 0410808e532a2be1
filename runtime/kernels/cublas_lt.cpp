#include "runtime/kernels/cublas_lt.hpp"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "runtime/kernels/cublas_lt_library.hpp"

namespace mgpu::ops {
namespace {

using lt::check, lt::Functions, lt::Owned;

cudaDataType_t cuda_type(at::ScalarType type) {
  if (type == at::kFloat) return CUDA_R_32F;
  return type == at::kHalf ? CUDA_R_16F : CUDA_R_16BF;
}

// The library stores matrices by columns, so it computes out^T = b^T a^T: its first matrix is b.
struct Description {
  Owned<cublasLtMatmulDesc_t> product;
  Owned<cublasLtMatrixLayout_t> first, second, out;
};

Description describe(const Functions& f, const Gemm& g) {
  auto product = lt::new_product(f);
  lt::set(f, product.get(), CUBLASLT_MATMUL_DESC_TRANSA,
          g.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  lt::set(f, product.get(), CUBLASLT_MATMUL_DESC_TRANSB,
          g.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (g.bias) lt::set(f, product.get(), CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  const auto stored = [&](std::int64_t rows, std::int64_t columns, bool transposed,
                          std::int64_t stride) {
    return transposed ? lt::layout(f, cuda_type(g.type), rows, columns, stride)
                      : lt::layout(f, cuda_type(g.type), columns, rows, stride);
  };
  return {std::move(product), stored(g.depth, g.columns, g.b_transposed, g.b_stride),
          stored(g.rows, g.depth, g.a_transposed, g.a_stride),
          lt::layout(f, cuda_type(g.out_type), g.columns, g.rows, g.out_stride)};
}

class CublasLt : public GemmLibrary {
 public:
  CublasLt(at::Device gpu, const Functions& functions)
      : gpu_(gpu),
        functions_(functions),
        handle_(lt::new_handle(functions), functions.destroy),
        workspace_(at::empty({kGemmWorkspace}, at::TensorOptions(gpu).dtype(at::kByte))) {}

  std::string version() const override {
    return "cuBLASLt " + std::to_string(functions_.version());
  }
  std::string device() const override { return at::cuda::getDeviceProperties(gpu_.index())->name; }
  std::vector<GemmAlgorithm> candidates(const Gemm& gemm, int most) override;
  std::unique_ptr<GemmTrial> trial(const Gemm& gemm) override;
  void run(const Gemm& gemm, const GemmAlgorithm& algorithm,
           const GemmOperands& operands) override {
    check(multiply(gemm, algorithm, operands), "cublasLtMatmul");
  }

  cublasStatus_t multiply(const Gemm& gemm, const GemmAlgorithm& algorithm,
                          const GemmOperands& operands);

 private:
  const Description& description_of(const Gemm& gemm) {
    const auto found = descriptions_.find(gemm);
    if (found != descriptions_.end()) return found->second;
    return descriptions_.emplace(gemm, describe(functions_, gemm)).first->second;
  }

  at::Device gpu_;
  Functions functions_;
  Owned<cublasLtHandle_t> handle_;
  Tensor workspace_;
  std::map<Gemm, Description> descriptions_;
};

std::vector<GemmAlgorithm> CublasLt::candidates(const Gemm& gemm, int most) {
  const auto preference =
      lt::new_preference(functions_, static_cast<std::uint64_t>(kGemmWorkspace));
  const auto& d = description_of(gemm);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int found = 0;
  // Fails if there is none.
  if (functions_.heuristic(handle_.get(), d.product.get(), d.first.get(), d.second.get(),
                           d.out.get(), d.out.get(), preference.get(), most, results.data(),
                           &found) != CUBLAS_STATUS_SUCCESS)
    return {};
  std::vector<GemmAlgorithm> algorithms;
  for (const auto& result : std::span(results).first(static_cast<std::size_t>(found))) {
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    auto& algorithm = algorithms.emplace_back();
    static_assert(sizeof algorithm.words == sizeof result.algo.data);
    std::ranges::copy(result.algo.data, algorithm.words.begin());
    algorithm.workspace = result.workspaceSize;
  }
  return algorithms;
}

cublasStatus_t CublasLt::multiply(const Gemm& gemm, const GemmAlgorithm& algorithm,
                                  const GemmOperands& o) {
  if (algorithm.workspace > static_cast<std::uint64_t>(kGemmWorkspace))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto& d = description_of(gemm);
  if (gemm.bias) {
    const void* const bias = o.bias.const_data_ptr();
    lt::set(functions_, d.product.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  cublasLtMatmulAlgo_t chosen{};
  std::ranges::copy(algorithm.words, std::begin(chosen.data));
  const auto alpha = static_cast<float>(o.alpha), beta = static_cast<float>(o.beta);
  void* const out = o.out.data_ptr();
  return functions_.multiply(handle_.get(), d.product.get(), &alpha, o.b.const_data_ptr(),
                             d.first.get(), o.a.const_data_ptr(), d.second.get(), &beta, out,
                             d.out.get(), out, d.out.get(), &chosen, workspace_.data_ptr(),
                             static_cast<std::size_t>(kGemmWorkspace),
                             c10::cuda::getCurrentCUDAStream(gpu_.index()).stream());
}

// Random numbers: products of zeros are faster. They come from a generator of their own, because
// training continues with the default one.
Tensor random_matrix(at::Device gpu, at::ScalarType type, std::int64_t rows, std::int64_t columns,
                     std::int64_t stride, bool transposed) {
  constexpr double kSmall = 0.1;  // so that repeated sums stay finite in fp16
  auto generator = at::globalContext().defaultGenerator(gpu).clone();
  Tensor whole =
      at::empty({transposed ? columns : rows, stride}, at::TensorOptions(gpu).dtype(type));
  whole.normal_(0, kSmall, generator);
  const Tensor part = whole.narrow(1, 0, transposed ? rows : columns);
  return transposed ? part.t() : part;
}

class Trial : public GemmTrial {
 public:
  Trial(CublasLt& library, at::Device gpu, const Gemm& g)
      : library_(library), gemm_(g), begin_(cudaEventDefault), end_(cudaEventDefault) {
    operands_.a = random_matrix(gpu, g.type, g.rows, g.depth, g.a_stride, g.a_transposed);
    operands_.b = random_matrix(gpu, g.type, g.depth, g.columns, g.b_stride, g.b_transposed);
    operands_.out = random_matrix(gpu, g.out_type, g.rows, g.columns, g.out_stride, false);
    if (g.bias)
      operands_.bias = random_matrix(gpu, g.out_type, 1, g.columns, g.columns, false).select(0, 0);
    operands_.beta = g.accumulates ? 1 : 0;
  }

  std::optional<double> seconds(const GemmAlgorithm* algorithm) override {
    constexpr int kCalls = 5;
    begin_.record();
    for (int i = 0; i < kCalls; ++i) {
      if (algorithm == nullptr)
        multiply_as_pytorch(operands_);
      else if (library_.multiply(gemm_, *algorithm, operands_) != CUBLAS_STATUS_SUCCESS)
        return {};
    }
    end_.record();
    end_.synchronize();
    return begin_.elapsed_time(end_) / 1000.0 / kCalls;
  }

 private:
  CublasLt& library_;
  Gemm gemm_;
  GemmOperands operands_;
  at::cuda::CUDAEvent begin_, end_;
};

std::unique_ptr<GemmTrial> CublasLt::trial(const Gemm& gemm) {
  try {
    return std::make_unique<Trial>(*this, gpu_, gemm);
  } catch (const c10::OutOfMemoryError&) {
    return nullptr;
  }
}

}  // namespace

bool has_cublas_lt() {
  return lt::find_functions().has_value();
}

std::unique_ptr<GemmLibrary> open_cublas_lt(at::Device gpu) {
  const auto functions = lt::find_functions();
  if (!functions) return nullptr;
  return std::make_unique<CublasLt>(gpu, *functions);
}

}  // namespace mgpu::ops
