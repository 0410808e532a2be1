#include <cuda_runtime_api.h>

#include <functional>
#include <string>

#include "runtime/kernels/kernels.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::kernels;
using Catch::Matchers::Contains;

namespace {

struct Launch {
  const char* kernel;
  std::function<void(Type)> start;
};

PagedAttention paged_arguments() {
  PagedAttention a{};
  a.kv_heads = a.splits = 1;
  return a;
}

Sampling sampling_arguments() {
  Sampling s{};
  s.temperature = 1;
  return s;
}

const Launch kLaunches[] = {
    {"rms_norm",
     [](Type t) {
       rms_norm(t, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, {1, 64}, {});
     }},
    {"rms_norm_backward",
     [](Type t) {
       rms_norm_backward(t, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                         {1, 64}, {});
     }},
    {"rotate",
     [](Type t) { rotate(t, nullptr, nullptr, nullptr, nullptr, false, {1, 64, 1, 64}, {}); }},
    {"copy_rows", [](Type) { copy_rows(nullptr, nullptr, nullptr, 1, 64, {}); }},
    {"swiglu", [](Type t) { swiglu(t, nullptr, nullptr, 1, 64, {}); }},
    {"swiglu_backward", [](Type t) { swiglu_backward(t, nullptr, nullptr, nullptr, 1, 64, {}); }},
    {"cross_entropy", [](Type t) { cross_entropy(t, nullptr, {}, {}, 1, 64, {}); }},
    {"adamw",
     [](Type t) {
       adamw({}, nullptr, t, nullptr, t, nullptr, t, nullptr, nullptr, nullptr, nullptr, nullptr,
             64, {});
     }},
    {"adamw_8bit",
     [](Type t) {
       adamw_8bit({}, nullptr, t, nullptr, t, nullptr, {}, {}, 0, nullptr, nullptr, nullptr, 64,
                  {});
     }},
    {"nf4_dequantize", [](Type t) { nf4_dequantize(t, nullptr, {}, nullptr, 64, {}); }},
    {"paged_attention", [](Type t) { paged_attention(t, paged_arguments(), 1, 64, 1, {}); }},
    {"put_in_pages", [](Type) { put_in_pages({}, 1, {}); }},
    {"sample", [](Type t) { sample(t, sampling_arguments(), 1, 64, {}); }},
};

bool has_gpu() {
  int gpus = 0;
  const bool found = cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0;
  cudaGetLastError();  // clears the error of a machine without GPUs
  return found;
}

}  // namespace

TEST_CASE("a kernel that cannot be started is an error that names it", "[kernels]") {
  if (has_gpu()) return;  // on a GPU these would start, without memory to work on
  for (const auto& launch : kLaunches)
    for (const Type type : {Type::f32, Type::bf16}) {
      CAPTURE(launch.kernel);
      CHECK_THROWS_WITH(
          launch.start(type),
          Contains("the GPU kernel " + std::string(launch.kernel) + " could not be started: "));
    }
}

TEST_CASE("a launch over no rows starts nothing", "[kernels]") {
  nf4_dequantize(Type::bf16, nullptr, {}, nullptr, 0, {});
  swiglu(Type::bf16, nullptr, nullptr, 0, 64, {});
  rms_norm(Type::bf16, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, {0, 64}, {});
  put_in_pages({}, 0, {});
}
