#include "runtime/commands/needed_torch.hpp"

#include <filesystem>
#include <fstream>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::recipes;
using Catch::Matchers::Contains;

namespace {

const NeededTorch kNeeded{.torch = "2.11.0", .cuda = "13.0"};

std::string problem(const char* version, const char* cuda, bool gpus = true) {
  return torch_problem(kNeeded, TorchPackage{"/v/torch", version, cuda, ""}, gpus,
                       "/v/bin/python3");
}

}  // namespace

TEST_CASE("a worker accepts every patch release of its torch, for its CUDA or for CPUs",
          "[torch]") {
  CHECK(problem("2.11.0+cu130", "13.0").empty());
  CHECK(problem("2.11.3", "13.1").empty());
  CHECK(problem("2.11.0+cpu", "", false).empty());
}

TEST_CASE(
    "a torch that the worker cannot use is named with the command that installs the right one",
    "[torch]") {
  CHECK(torch_problem(kNeeded, std::nullopt, false, "/v/bin/python3") ==
        "torch 2.11 is missing; run /v/bin/python3 -m pip install 'torch==2.11.*'");
  CHECK(
      problem("2.10.0+cu128", "12.8") ==
      "this mgpu-train needs torch 2.11, but /v/torch has 2.10.0+cu128; run /v/bin/python3 -m pip "
      "install 'torch==2.11.*', or build mgpu-train from source for torch 2.10: scripts/build.sh "
      "--torch=2.10.0");
  CHECK_THAT(problem("2.1.0", "12.1"), Contains("has 2.1.0;"));  // not 2.11
  CHECK_THAT(problem("2.11.0+cu128", "12.8"),
             Contains("needs torch for CUDA 13, but /v/torch has 2.11.0+cu128 for CUDA 12.8"));
}

TEST_CASE("a torch without CUDA is refused where GPUs would be idle", "[torch]") {
  CHECK_THAT(problem("2.11.0+cpu", ""),
             Contains("a build without CUDA, so the GPUs of this machine would be idle") &&
                 Contains("set CUDA_VISIBLE_DEVICES= to compute on CPUs"));
}

TEST_CASE("a torch without the packages of NVIDIA is refused", "[torch]") {
  const TorchPackage package{"/c/torch", "2.11.0", "13.0", "libnccl.so.2"};
  CHECK_THAT(torch_problem(kNeeded, package, true, "python3"),
             Contains("/c/torch has no libnccl.so.2 in the packages of NVIDIA beside it"));
}

TEST_CASE("a torch package is described by its version.py", "[torch]") {
  tests::TempDir dir;
  CHECK_FALSE(read_torch_package(dir.path("torch")));
  std::filesystem::create_directories(dir.path("torch"));
  const auto write = [&](const char* text) { std::ofstream(dir.path("torch/version.py")) << text; };
  write(
      "from typing import Optional\n__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n");
  auto package = read_torch_package(dir.path("torch"));
  REQUIRE(package);
  CHECK(package->version == "2.11.0+cu130");
  CHECK(package->cuda == "13.0");
  CHECK(package->missing == "libcudart.so.13");
  std::filesystem::create_directories(dir.path("nvidia/cu13/lib"));
  std::ofstream(dir.path("nvidia/cu13/lib/libcudart.so.13")) << "";
  CHECK(read_torch_package(dir.path("torch"))->missing == "libnccl.so.2");
  std::filesystem::create_directories(dir.path("nvidia/nccl/lib"));
  std::ofstream(dir.path("nvidia/nccl/lib/libnccl.so.2")) << "";
  CHECK(read_torch_package(dir.path("torch"))->missing.empty());
  write("__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n");
  package = read_torch_package(dir.path("torch"));
  REQUIRE(package);
  CHECK(package->cuda.empty());
}

TEST_CASE("a damaged build.json is an error", "[torch]") {
  CHECK(read_needed_torch(R"({"torch": "2.11.0", "cuda": "13.0"})").cuda == "13.0");
  for (const char* text : {"", "[", "[]", R"({"torch": 2})"})
    CHECK_THROWS_WITH(read_needed_torch(text), Contains("build.json is damaged"));
}
