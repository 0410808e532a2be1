#include "runtime/train/gpu_support.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

TEST_CASE("machine code runs on its generation, and PTX on all later ones", "[gpus]") {
  struct Case {
    const char* architectures;
    int capability;
    bool expected;
  };
  const auto [architectures, capability, expected] = GENERATE(values<Case>({
      {"80-real 90", 80, true},
      {"80-real 90", 86, true},  // by the code for 8.0
      {"80-real 90", 90, true},
      {"80-real 90", 120, true},  // by the PTX of 9.0
      {"80-real 90", 75, false},
      {"86-real", 80, false},
      {"86-real", 90, false},
      {"90a-real", 90, true},
      {"90a", 100, false},
      {"75-virtual", 89, true},
      {"75-virtual", 70, false},
      {"", 90, false},
      {"native", 90, false},
  }));
  CAPTURE(architectures, capability);
  CHECK(has_code(architectures, capability) == expected);
}

TEST_CASE("a GPU without code is refused by name with what to do", "[gpus]") {
  CHECK(unsupported_gpu({0, "NVIDIA H100", 90}, "80-real 90", 13).empty());
  CHECK(
      unsupported_gpu({1, "Tesla T4", 75}, "80-real 90", 13) ==
      "GPU 1 (Tesla T4, compute capability 7.5) is not supported: this mgpu-train has kernels for "
      "8.0, 9.0; build it on this machine (scripts/build.sh), or anywhere with "
      "-DCMAKE_CUDA_ARCHITECTURES=75");
  CHECK_THAT(unsupported_gpu({0, "NVIDIA TITAN V", 70}, "75-real 90", 13),
             Contains("torch for CUDA 13 needs 7.5 or newer"));
}

TEST_CASE("without kernels of ours every GPU of torch is supported", "[gpus]") {
  CHECK(unsupported_gpu({0, "Tesla T4", 75}, "", 13).empty());
  CHECK(unsupported_gpu({0, "NVIDIA TITAN V", 70}, "", 12).empty());
  CHECK_FALSE(unsupported_gpu({0, "NVIDIA TITAN V", 70}, "", 13).empty());
}

TEST_CASE("an old driver is refused with the version to install", "[gpus]") {
  CHECK(
      old_driver(12040, 13000) ==
      "the NVIDIA driver supports CUDA 12.4 and this mgpu-train needs CUDA 13.0; update the driver "
      "to version 580 or newer, build mgpu-train for torch 2.10, which needs CUDA 12.8 "
      "(scripts/build.sh --torch=2.10.0), or set CUDA_VISIBLE_DEVICES= to compute on CPUs");
  CHECK_THAT(old_driver(11080, 12080), Contains("supports CUDA 11.8") && !Contains("580"));
}
