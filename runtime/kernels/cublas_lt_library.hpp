#pragma once

#include <cublasLt.h>
#include <dlfcn.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

// The functions of cuBLASLt that we call, for the files that call them.
namespace mgpu::ops::lt {

// libtorch_cuda has loaded the library. To link it as well would make it one more library without
// which the worker does not start where torch has no CUDA (docs/decisions/0006-one-worker.md).
struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmul) multiply;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) create_product;
  decltype(&cublasLtMatmulDescDestroy) destroy_product;
  decltype(&cublasLtMatmulDescSetAttribute) set_product;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
};

template <class Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

inline std::optional<Functions> find_functions() {
  Functions f{};
  const bool all = find(f.create, "cublasLtCreate") && find(f.destroy, "cublasLtDestroy") &&
                   find(f.version, "cublasLtGetVersion") && find(f.multiply, "cublasLtMatmul") &&
                   find(f.heuristic, "cublasLtMatmulAlgoGetHeuristic") &&
                   find(f.create_product, "cublasLtMatmulDescCreate") &&
                   find(f.destroy_product, "cublasLtMatmulDescDestroy") &&
                   find(f.set_product, "cublasLtMatmulDescSetAttribute") &&
                   find(f.create_layout, "cublasLtMatrixLayoutCreate") &&
                   find(f.destroy_layout, "cublasLtMatrixLayoutDestroy") &&
                   find(f.create_preference, "cublasLtMatmulPreferenceCreate") &&
                   find(f.destroy_preference, "cublasLtMatmulPreferenceDestroy") &&
                   find(f.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  return all ? std::optional(f) : std::nullopt;
}

inline void check(cublasStatus_t status, const char* function) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(function) + " failed with status " +
                             std::to_string(static_cast<int>(status)));
}

// Something that the library creates and destroys.
template <class Handle>
class Owned {
 public:
  Owned(Handle handle, cublasStatus_t (*destroy)(Handle)) : handle_(handle), destroy_(destroy) {}
  Owned(Owned&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), destroy_(other.destroy_) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (handle_ != nullptr) destroy_(handle_);
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_;
  cublasStatus_t (*destroy_)(Handle);
};

inline cublasLtHandle_t new_handle(const Functions& functions) {
  cublasLtHandle_t handle = nullptr;
  check(functions.create(&handle), "cublasLtCreate");
  return handle;
}

inline Owned<cublasLtMatrixLayout_t> layout(const Functions& f, cudaDataType_t type,
                                            std::int64_t rows, std::int64_t columns,
                                            std::int64_t stride) {
  cublasLtMatrixLayout_t handle = nullptr;
  check(f.create_layout(&handle, type, static_cast<std::uint64_t>(rows),
                        static_cast<std::uint64_t>(columns), stride),
        "cublasLtMatrixLayoutCreate");
  return {handle, f.destroy_layout};
}

inline Owned<cublasLtMatmulDesc_t> new_product(const Functions& f) {
  cublasLtMatmulDesc_t handle = nullptr;
  check(f.create_product(&handle, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  return {handle, f.destroy_product};
}

template <class Value>
void set(const Functions& f, cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t name,
         const Value& value) {
  check(f.set_product(product, name, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}

// What to choose an algorithm by: workspace, alignment, and sums of parts in fp32, or no parts.
inline Owned<cublasLtMatmulPreference_t> new_preference(const Functions& f,
                                                        std::uint64_t workspace) {
  cublasLtMatmulPreference_t handle = nullptr;
  check(f.create_preference(&handle), "cublasLtMatmulPreferenceCreate");
  Owned<cublasLtMatmulPreference_t> preference(handle, f.destroy_preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    check(f.set_preference(handle, name, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  constexpr std::uint32_t kAlignedTo = 16;  // bytes
  for (const auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(name, kAlignedTo);
  return preference;
}

}  // namespace mgpu::ops::lt
