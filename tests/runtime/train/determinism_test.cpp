#include "runtime/train/determinism.hpp"

#include <ATen/Context.h>
#include <stdlib.h>

#include <string>

#include "tests/support/catch.hpp"

using mgpu::train::require_determinism;

namespace {

std::string value_of(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

// Takes everything back that require_determinism() sets.
struct Restore {
  Restore() { clear(); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;
  ~Restore() { clear(); }
  static void clear() {
    ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
    ::unsetenv("NCCL_NVLS_ENABLE");
    at::globalContext().setDeterministicAlgorithms(false, false);
  }
};

}  // namespace

TEST_CASE("determinism is required of ATen, cuBLAS and NCCL", "[determinism]") {
  const Restore restore;
  SECTION("by default of all three") {
    require_determinism();
    CHECK(value_of("CUBLAS_WORKSPACE_CONFIG") == ":4096:8");
    CHECK(value_of("NCCL_NVLS_ENABLE") == "0");
    CHECK(at::globalContext().deterministicAlgorithms());
    // With warnings only, flash attention would keep its faster backward pass.
    CHECK_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
  }
  SECTION("but variables that are set keep their values") {
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
    ::setenv("NCCL_NVLS_ENABLE", "1", 1);
    require_determinism();
    CHECK(value_of("CUBLAS_WORKSPACE_CONFIG") == ":16:8");
    CHECK(value_of("NCCL_NVLS_ENABLE") == "1");
  }
}
