#include "launcher/doctor/torch_files.hpp"

#include <filesystem>
#include <fstream>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using mgpu::tests::TempDir;

namespace {

// The files of a fake site-packages folder.
struct Site {
  TempDir dir{TempDir::in_memory()};

  void add(const std::string& name, const std::string& text = "") const {
    const std::filesystem::path path = dir.path(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string lib() const { return dir.path("torch/lib"); }
};

}  // namespace

TEST_CASE("the LibTorch of a wheel is recognised by its files and the packages beside it",
          "[torch]") {
  Site site;
  site.add("torch/lib/libtorch_cpu.so");
  site.add("torch/lib/libtorch_cuda.so");
  site.add("torch/version.py",
           "from typing import Optional\n__version__ = '2.11.0+cu130'\ndebug = False\n"
           "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n");
  site.add("nvidia/cu13/lib/libcudart.so.13");
  site.add("nvidia/nccl/lib/libnccl.so.2");
  SECTION("versions are read from the packages") {
    site.add("nvidia_cuda_runtime-13.0.96.dist-info/METADATA");
    site.add("nvidia_nccl_cu13-2.28.9.dist-info/METADATA");
    const auto torch = read_torch({"/nope", site.lib()});
    CHECK(torch.folder == site.lib());
    CHECK(torch.version == "2.11.0+cu130");
    CHECK(torch.cuda == "13.0");
    CHECK(torch.has_cuda_library);
    CHECK(torch.cudart == "13.0.96");
    CHECK(torch.nccl == "2.28.9");
  }
  SECTION("without packages they are read from the libraries") {
    const auto torch = read_torch({site.lib()});
    CHECK(torch.cudart == "13");
    CHECK(torch.nccl == "2");
  }
}

TEST_CASE("a package without its library is ignored", "[torch]") {
  Site site;
  site.add("torch/lib/libtorch_cpu.so");
  site.add("nvidia_nccl_cu13-2.28.9.dist-info/METADATA");
  CHECK(read_torch({site.lib()}).nccl.empty());
}

TEST_CASE("a LibTorch for CPUs and the archive for C++ are recognised too", "[torch]") {
  Site site;
  site.add("libtorch/lib/libtorch_cpu.so");
  site.add("libtorch/build-version", "2.11.0+cpu\n");
  const auto torch = read_torch({site.dir.path("libtorch/lib")});
  CHECK(torch.version == "2.11.0+cpu");
  CHECK(torch.cuda.empty());
  CHECK_FALSE(torch.has_cuda_library);
  site.add("torch/lib/libtorch_cpu.so");
  site.add("torch/version.py", "__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n");
  CHECK(read_torch({site.lib()}).cuda.empty());
  CHECK(read_torch({site.lib()}).version == "2.11.0+cpu");
}

TEST_CASE("libraries in other folders are found on the program's search path", "[torch]") {
  Site site;
  site.add("torch/lib/libtorch_cpu.so");
  site.add("cuda/libcudart-1234.so.12.8");
  site.add("cuda/libnccl.so");
  const auto torch = read_torch({site.lib()}, {site.dir.path("cuda")});
  CHECK(torch.cudart == "12.8");
  CHECK(torch.nccl == "libnccl.so");
  CHECK(read_torch({site.dir.path("nothing")}).folder.empty());
}
