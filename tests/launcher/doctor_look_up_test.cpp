#include "launcher/doctor/look_up.hpp"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "launcher/doctor/checks.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/fake_machine.hpp"
#include "tests/support/loaded_nvml.hpp"

using namespace mgpu::launcher;
using namespace mgpu::tests;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using mgpu::rendezvous::UniqueFd;

namespace {

// Sets or removes a variable until the end of the test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = ::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() {
    if (before_)
      ::setenv(name_, before_->c_str(), 1);
    else
      ::unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string program(const TempDir& dir, const std::string& text) {
  const auto path = dir.path("mgpu-train");
  std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

Inherited inherited() {
  Inherited all;
  ::getrlimit(RLIMIT_NOFILE, &all.nofile);
  sigemptyset(&all.mask);
  return all;
}

}  // namespace

TEST_CASE("a free port and a port in use are distinguished", "[doctor]") {
  CHECK(try_port(0).error.empty());
  const UniqueFd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  REQUIRE(::bind(server.get(), plain, size) == 0);
  REQUIRE(::listen(server.get(), 1) == 0);
  REQUIRE(::getsockname(server.get(), plain, &size) == 0);
  const auto taken = try_port(ntohs(address.sin_port));
  CHECK(taken.error == "cannot bind it: Address already in use");
  CHECK(taken.port == ntohs(address.sin_port));
}

TEST_CASE("a missing folder is checked by its nearest existing parent", "[doctor]") {
  TempDir dir(TempDir::in_memory());
  const auto disk = look_at_disk("Hub cache", dir.path("a/b/c"));
  CHECK(disk.error.empty());
  CHECK(disk.total > 0);
  CHECK(disk.free > 0);
  CHECK(disk.writable);
  CHECK(disk.path == dir.path("a/b/c"));
  std::ofstream(dir.path("file")) << "x";
  CHECK_FALSE(look_at_disk("current folder", "/proc/self").writable);
}

TEST_CASE("InfiniBand devices are found with their state", "[doctor]") {
  FakeMachine machine(desktop());
  CHECK(find_fabric(machine.roots()).empty());
  machine.write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  machine.write("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  CHECK(find_fabric(machine.roots()) ==
        std::map<std::string, bool>{{"mlx5_0", true}, {"mlx5_1", false}});
}

TEST_CASE("memory is read from the kernel's table", "[doctor]") {
  FakeMachine machine(desktop());
  machine.write("proc/meminfo", "MemTotal:       1024 kB\nMemFree: 1 kB\nMemAvailable:  512 kB");
  const auto memory = look_at_memory(machine.roots());
  CHECK(memory.total == 1024 * 1024);
  CHECK(memory.available == 512 * 1024);
}

TEST_CASE("mgpu-train is run for its version", "[doctor][fork]") {
  TempDir dir;
  const Variable chosen("MGPU_TRAIN", program(dir, "echo mgpu-train 1.2.3 \"$@\""));
  const auto facts = try_trainer(inherited(), 20s);
  CHECK(facts.path == dir.path("mgpu-train"));
  CHECK(facts.status == 0);
  CHECK(facts.output == "mgpu-train 1.2.3 version --worker\n");
}

TEST_CASE("an mgpu-train that hangs is killed", "[doctor][fork]") {
  TempDir dir;
  const Variable chosen("MGPU_TRAIN", program(dir, "sleep 600"));
  CHECK(try_trainer(inherited(), 50ms).timed_out);
}

TEST_CASE("an MGPU_TRAIN that does not exist is a failure", "[doctor]") {
  const Variable chosen("MGPU_TRAIN", "/nope/mgpu-train");
  const auto facts = try_trainer(inherited(), 20s);
  CHECK(facts.path == "/nope/mgpu-train");
  CHECK(facts.status != 0);
  CHECK_THAT(facts.output, Contains("MGPU_TRAIN=/nope/mgpu-train: no such program"));
}

TEST_CASE("LibTorch is searched for beside mgpu-train, in LIBTORCH_ROOT, then in python3",
          "[doctor][fork]") {
  TempDir dir;
  const auto add = [&](const std::string& folder) {
    std::filesystem::create_directories(dir.path(folder));
    std::ofstream(dir.path(folder + "/libtorch_cpu.so")) << "";
  };
  const Variable python("PYTHON_EXEC", program(dir, "echo " + dir.path("python")));
  const auto trainer = dir.path("bin/mgpu-train");
  Variable root("LIBTORCH_ROOT", "");
  CHECK(find_torch(trainer, inherited(), 20s).folder.empty());
  add("python/lib");
  CHECK(find_torch(trainer, inherited(), 20s).by == "python3");
  add("root/lib");
  ::setenv("LIBTORCH_ROOT", dir.path("root").c_str(), 1);
  CHECK(find_torch(trainer, inherited(), 20s).by == "LIBTORCH_ROOT");
  add("bin/lib");
  CHECK(find_torch(trainer, inherited(), 20s).by == "mgpu-train");
  CHECK(find_torch(trainer, inherited(), 20s).folder == dir.path("bin/lib"));
}

TEST_CASE("LibTorch is that of the worker of mgpu-train", "[doctor]") {
  TempDir dir;
  for (const char* folder : {"bin", "libexec/mgpu"}) {
    std::filesystem::create_directories(dir.path(folder));
    const auto program = dir.path(std::string(folder) + "/mgpu-train");
    std::ofstream(program) << "";
    ::chmod(program.c_str(), 0755);
  }
  std::filesystem::create_directories(dir.path("libexec/mgpu/lib"));
  std::ofstream(dir.path("libexec/mgpu/lib/libtorch_cpu.so")) << "";
  std::filesystem::create_symlink(dir.path("bin/mgpu-train"), dir.path("mgpu-train"));
  for (const char* trainer : {"bin/mgpu-train", "mgpu-train"})
    CHECK(find_torch(dir.path(trainer), inherited(), 20s).by == "mgpu-train");
}

TEST_CASE("all facts are collected, and GPU problems are found", "[doctor][nvml][fork]") {
  TempDir dir;
  const Variable chosen("MGPU_TRAIN", program(dir, "echo mgpu-train"));
  const Variable python("PYTHON_EXEC", program(dir, "echo mgpu-train"));
  const Variable cache("HF_HOME", dir.path("hub"));
  const Variable no_cache("HF_HUB_CACHE", "");
  const Variable interface("NCCL_SOCKET_IFNAME", "lo");
  FakeMachine machine(four_nodes());
  LoadedNvml nvml("2", "switch", "ecc pending broken prohibited mig hot");
  Options options;
  options.doctor_port = 1;
  const auto facts = look_up_doctor_facts(options, inherited(), machine.roots());
  CHECK(facts.devices.gpus.size() == 2);
  CHECK(facts.driver_cuda == 13000);
  CHECK(facts.device_files);
  REQUIRE(facts.health.size() == 2);
  CHECK(facts.health[0].uncorrected_errors == 0);
  CHECK(facts.health[0].slowdown == 0x1);
  CHECK(facts.health[1].uncorrected_errors == 3);
  CHECK(facts.health[1].remapping_pending);
  CHECK(facts.health[1].remapping_failed);
  CHECK(facts.health[1].compute_prohibited);
  CHECK(facts.health[1].mig);
  CHECK(facts.health[1].slowdown == 0x40);
  CHECK(facts.trainer.output == "mgpu-train\n");
  CHECK(facts.wanted_port.has_value());
  REQUIRE(facts.disks.size() == 3);
  CHECK(facts.disks[1].path == dir.path("hub"));
  CHECK(facts.variables == std::map<std::string, std::string>{{"NCCL_SOCKET_IFNAME", "lo"}});
  CHECK(facts.limits.open_files.has_value());
}
