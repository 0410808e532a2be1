#include "runtime/kernels/fp8_on_gpu.hpp"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>

#include <compare>
#include <map>
#include <stdexcept>
#include <utility>

#include "runtime/kernels/cublas_lt.hpp"
#include "runtime/kernels/cublas_lt_library.hpp"

// CUDA 12.9 introduced scales per block.
#if defined(CUBLAS_VERSION) && CUBLAS_VERSION >= 120900
#define MGPU_FP8_BLOCKS 1
#endif

namespace mgpu::ops::on_gpu {

#ifdef MGPU_FP8_BLOCKS

namespace {

using lt::check, lt::Functions, lt::Owned;

constexpr std::size_t kOldestVersion = 120900;
constexpr std::size_t kMostShapes = 4096;  // that are remembered

struct Fp8Gemm {
  std::int64_t rows = 0, columns = 0, depth = 0, stride = 0;  // stride of the result
  at::ScalarType type = at::kBFloat16;

  friend auto operator<=>(const Fp8Gemm&, const Fp8Gemm&) = default;
};

// How a product is computed. The library stores matrices by columns, so its first matrix is W, and
// its result is out^T.
struct Plan {
  Owned<cublasLtMatmulDesc_t> product;
  Owned<cublasLtMatrixLayout_t> first, second, out;
  cublasLtMatmulAlgo_t algorithm{};
  bool adds = true;  // can have a beta other than 0
};

struct Pointers {
  const void *w, *w_scales, *x, *x_scales;
  void* out;
};

class Fp8Products {
 public:
  Fp8Products(at::Device gpu, const Functions& functions)
      : gpu_(gpu),
        functions_(functions),
        handle_(lt::new_handle(functions), functions.destroy),
        workspace_(at::empty({kGemmWorkspace}, at::TensorOptions(gpu).dtype(at::kByte))) {}

  // False if the library has no such product with a beta other than 0.
  bool multiply(const Fp8Gemm& gemm, const Pointers& at, double beta) {
    auto& plan = plan_of(gemm, at);
    if (beta != 0 && !plan.adds) return false;
    const float one = 1, factor = static_cast<float>(beta);
    set_scales(plan, at);
    const auto status = functions_.multiply(
        handle_.get(), plan.product.get(), &one, at.w, plan.first.get(), at.x, plan.second.get(),
        &factor, at.out, plan.out.get(), at.out, plan.out.get(), &plan.algorithm,
        workspace_.data_ptr(), static_cast<std::size_t>(kGemmWorkspace),
        c10::cuda::getCurrentCUDAStream(gpu_.index()).stream());
    if (beta != 0 &&
        (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)) {
      plan.adds = false;
      return false;
    }
    check(status, "cublasLtMatmul in fp8");
    return true;
  }

 private:
  Plan& plan_of(const Fp8Gemm& gemm, const Pointers& at) {
    if (const auto found = plans_.find(gemm); found != plans_.end()) return found->second;
    if (plans_.size() >= kMostShapes) plans_.clear();
    return plans_.emplace(gemm, make_plan(gemm, at)).first->second;
  }

  Plan make_plan(const Fp8Gemm& g, const Pointers& at) {
    const auto& f = functions_;
    Plan plan{
        lt::new_product(f), lt::layout(f, CUDA_R_8F_E4M3, g.depth, g.columns, g.depth),
        lt::layout(f, CUDA_R_8F_E4M3, g.depth, g.rows, g.depth),
        lt::layout(f, g.type == at::kHalf ? CUDA_R_16F : CUDA_R_16BF, g.columns, g.rows, g.stride)};
    const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
      lt::set(f, plan.product.get(), name, value);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
    set_scales(plan, at);
    const auto preference = lt::new_preference(f, static_cast<std::uint64_t>(kGemmWorkspace));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    check(f.heuristic(handle_.get(), plan.product.get(), plan.first.get(), plan.second.get(),
                      plan.out.get(), plan.out.get(), preference.get(), 1, &result, &found),
          "cublasLtMatmulAlgoGetHeuristic in fp8");
    check(found > 0 ? result.state : CUBLAS_STATUS_NOT_SUPPORTED,
          "cublasLtMatmulAlgoGetHeuristic in fp8");
    plan.algorithm = result.algo;
    return plan;
  }

  void set_scales(const Plan& plan, const Pointers& at) {
    lt::set(functions_, plan.product.get(), CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, at.w_scales);
    lt::set(functions_, plan.product.get(), CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, at.x_scales);
  }

  at::Device gpu_;
  Functions functions_;
  Owned<cublasLtHandle_t> handle_;
  Tensor workspace_;
  std::map<Fp8Gemm, Plan> plans_;
};

Fp8Products& products_of(at::Device gpu) {
  // Never destroyed: at the end of the process the libraries may be gone before.
  static thread_local auto& all = *new std::map<c10::DeviceIndex, Fp8Products>;
  if (const auto found = all.find(gpu.index()); found != all.end()) return found->second;
  const auto functions = lt::find_functions();
  if (!functions) throw std::logic_error("this cuBLASLt lacks a function");
  return all.try_emplace(gpu.index(), gpu, *functions).first->second;
}

// A product writes more rows than `out` has: see empty_for_fp8().
void require_room(const Tensor& out, std::int64_t rows) {
  const auto last = out.storage_offset() + (rows - 1) * out.stride(0) + out.size(1);
  if (out.stride(1) != 1 ||
      last * out.element_size() > static_cast<std::int64_t>(out.storage().nbytes()))
    throw std::logic_error("the result of a product in fp8 has no memory for its last rows");
}

}  // namespace

bool has_fp8_library() {
  static const bool found = [] {  // asked for every product
    const auto functions = lt::find_functions();
    return functions && functions->version() >= kOldestVersion;
  }();
  return found;
}

void multiply(const Tensor& out, const Fp8Rows& x, const Fp8& w, double beta) {
  const auto rows = x.codes.size(0);
  if (rows == 0) return;
  require_room(out, rows);
  const Fp8Gemm gemm{rows, w.rows, w.columns, out.stride(0), out.scalar_type()};
  const Pointers at{w.codes.const_data_ptr(), w.scales.const_data_ptr(), x.codes.const_data_ptr(),
                    x.scales.const_data_ptr(), out.data_ptr()};
  auto& products = products_of(out.device());
  if (products.multiply(gemm, at, beta)) return;
  Tensor alone = at::empty({rows, w.rows}, out.options());
  multiply(alone, x, w, 0);
  Tensor(out).mul_(beta).add_(alone.narrow(0, 0, out.size(0)));
}

#else

bool has_fp8_library() {
  return false;
}

void multiply(const Tensor&, const Fp8Rows&, const Fp8&, double) {
  throw std::logic_error("this build has no products in fp8");
}

#endif

}  // namespace mgpu::ops::on_gpu
