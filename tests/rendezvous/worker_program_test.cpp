#include "rendezvous/base/worker_program.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using rendezvous::worker_program;

namespace {

std::string add_worker(const tests::TempDir& dir, const std::string& folder) {
  std::filesystem::create_directories(dir.path(folder));
  const auto program = dir.path(folder + "/mgpu-train");
  std::ofstream(program) << "";
  ::chmod(program.c_str(), 0755);
  return program;
}

}  // namespace

TEST_CASE("the worker is found where a build, pip and a virtual environment put it", "[worker]") {
  tests::TempDir dir;
  const auto bin = dir.path("bin");
  CHECK(worker_program(bin, "0.1.0").empty());

  SECTION("in a virtual environment") {
    const auto worker = add_worker(dir, "lib/python3.12/site-packages/mgpu_train");
    CHECK(worker_program(bin, "0.1.0") == worker);
  }
  SECTION("in Debian's folder of packages") {
    const auto worker = add_worker(dir, "lib/python3.13/dist-packages/mgpu_train");
    CHECK(worker_program(bin, "0.1.0") == worker);
  }
  SECTION("after pip install --target") {
    const auto worker = add_worker(dir, "mgpu_train");
    CHECK(worker_program(bin, "0.1.0") == worker);
  }
  SECTION("in a build, whatever else is there") {
    add_worker(dir, "lib/python3.12/site-packages/mgpu_train");
    const auto worker = add_worker(dir, "libexec/mgpu");
    CHECK(worker_program(bin, "0.1.0") == worker);
  }
}

TEST_CASE("of several Pythons the one with this version is chosen, else the newest", "[worker]") {
  tests::TempDir dir;
  const auto old = add_worker(dir, "lib/python3.9/site-packages/mgpu_train");
  const auto newest = add_worker(dir, "lib/python3.12/site-packages/mgpu_train");
  add_worker(dir, "lib/python3.x/site-packages/mgpu_train");  // not a version
  CHECK(worker_program(dir.path("bin"), "0.1.0") == newest);
  std::filesystem::create_directories(
      dir.path("lib/python3.9/site-packages/mgpu_train-0.1.0.dist-info"));
  CHECK(worker_program(dir.path("bin"), "0.1.0") == old);
  CHECK(worker_program(dir.path("bin"), "0.2.0") == newest);
}

TEST_CASE("a file that is not executable is no worker", "[worker]") {
  tests::TempDir dir;
  ::chmod(add_worker(dir, "libexec/mgpu").c_str(), 0644);
  CHECK(worker_program(dir.path("bin"), "0.1.0").empty());
}
