#include "runtime/commands/visible_gpus.hpp"

#include <stdlib.h>

#include "tests/support/catch.hpp"
#include "tests/support/loaded_nvml.hpp"

using namespace mgpu;
using namespace mgpu::recipes;
using Uuids = std::vector<std::string>;

TEST_CASE("CUDA_VISIBLE_DEVICES selects GPUs as CUDA does", "[gpus]") {
  const Uuids all{"GPU-0a", "GPU-1b", "GPU-1c"};
  CHECK(visible_entries(std::nullopt, all) == all);
  CHECK(visible_entries("", all).empty());
  CHECK(visible_entries("-1", all).empty());
  CHECK(visible_entries("2, 0", all) == Uuids{"GPU-1c", "GPU-0a"});
  CHECK(visible_entries("0,7,1", all) ==
        Uuids{"GPU-0a"});  // the list ends at a GPU that is not there
  CHECK(visible_entries("1,1", all).empty());
  CHECK(visible_entries("GPU-0", all) == Uuids{"GPU-0a"});
  CHECK(visible_entries("GPU-1", all).empty());  // two GPUs have this beginning
  CHECK(visible_entries("MIG-4", all) == Uuids{"MIG-4"});
}

TEST_CASE("the memory of a GPU is that of the first visible one", "[gpus]") {
  const tests::LoadedNvml nvml("2", "");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  CHECK(look_up_gpus().count == 2);
  CHECK(look_up_gpus().memory == 80LL << 30);
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  CHECK(look_up_gpus().count == 0);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_CASE("without a driver there are no GPUs", "[gpus]") {
  ::unsetenv("FAKE_NVML_GPUS");
  const tests::LoadedNvml nvml(nullptr, "");
  CHECK(look_up_gpus().count == 0);
}
