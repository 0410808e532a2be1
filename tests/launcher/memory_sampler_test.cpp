#include "launcher/memory/sampler.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "launcher/memory/gpu_sampler.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/loaded_nvml.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;

namespace {

constexpr std::uint64_t kMebibyte = 1 << 20;

// The memory of this process, in a way that the kernel counts at once.
class Touched {
 public:
  explicit Touched(std::size_t bytes, int kind = MAP_PRIVATE)
      : bytes_(bytes),
        memory_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(memory_ != MAP_FAILED);
    std::memset(memory_, 1, bytes_);
  }
  Touched(const Touched&) = delete;
  Touched& operator=(const Touched&) = delete;
  ~Touched() { ::munmap(memory_, bytes_); }

 private:
  std::size_t bytes_;
  void* memory_;
};

// A file that is mapped and was read, so that its pages are resident.
class MappedFile {
 public:
  explicit MappedFile(std::size_t bytes) : bytes_(bytes) {
    {
      // Small blocks: AddressSanitizer keeps freed memory.
      std::ofstream file(dir_.path("data"));
      const std::string block(1 << 16, 'x');
      for (std::size_t done = 0; done < bytes; done += block.size()) file << block;
    }
    const int fd = ::open(dir_.path("data").c_str(), O_RDONLY | O_CLOEXEC);
    memory_ = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    ::close(fd);
    REQUIRE(memory_ != MAP_FAILED);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() { ::munmap(memory_, bytes_); }

  // Else its pages are shared memory.
  bool on_disk() const {
    struct statfs system = {};
    REQUIRE(::statfs(dir_.path("data").c_str(), &system) == 0);
    return system.f_type != TMPFS_MAGIC;
  }

 private:
  mgpu::tests::TempDir dir_;
  std::size_t bytes_;
  void* memory_ = MAP_FAILED;
};

// A copy of this process that shares its memory, as a data loader.
class ForkedLoader {
 public:
  ForkedLoader() : pid_(::fork()) {
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      while (true) ::pause();
    }
    REQUIRE(pid_ > 0);
  }
  ForkedLoader(const ForkedLoader&) = delete;
  ForkedLoader& operator=(const ForkedLoader&) = delete;
  ~ForkedLoader() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

// What a fake NVML shows, one line for each GPU.
class GpuState {
 public:
  GpuState() { ::setenv("FAKE_NVML_STATE", dir_.path("state").c_str(), 1); }
  GpuState(const GpuState&) = delete;
  GpuState& operator=(const GpuState&) = delete;
  ~GpuState() { ::unsetenv("FAKE_NVML_STATE"); }
  void show(const std::string& lines) { std::ofstream(dir_.path("state")) << lines; }

 private:
  mgpu::tests::TempDir dir_;
};

}  // namespace

TEST_CASE("the memory of a process is its resident size", "[process_memory]") {
  const auto before = memory_of(::getpid());
  const Touched more(64 * kMebibyte);
  const auto after = memory_of(::getpid());
  CHECK(after.own >= before.own + 60 * kMebibyte);
  CHECK(exact_bytes(::getpid(), {}) >= 64 * kMebibyte);
  CHECK(memory_of(999'999'999).total() == 0);
  CHECK(exact_bytes(999'999'999, {.children = {::getpid()}}) == 0);
  const auto host = host_memory();
  CHECK(host.used > 0);
  CHECK(host.used < host.total);
}

TEST_CASE("a file that a rank has mapped is not its memory, but shared memory is",
          "[process_memory]") {
  const auto before = memory_of(::getpid()).own;
  const auto exact_before = exact_bytes(::getpid(), {});
  SECTION("a file") {
    const MappedFile file(64 * kMebibyte);
    if (!file.on_disk()) return;
    CHECK(memory_of(::getpid()).own < before + 32 * kMebibyte);
    CHECK(exact_bytes(::getpid(), {}) < exact_before + 32 * kMebibyte);
  }
  SECTION("shared memory") {
    const Touched shared(64 * kMebibyte, MAP_SHARED);
    CHECK(memory_of(::getpid()).own >= before + 60 * kMebibyte);
    CHECK(exact_bytes(::getpid(), {}) >= exact_before + 60 * kMebibyte);
  }
}

TEST_CASE("a rank above its limit is reported if the kernel does not limit it",
          "[memory_sampler]") {
  MemorySampler sampler;
  const Touched memory(64 * kMebibyte);
  SampleRequest request{.ranks = {{.rank = 4, .pid = ::getpid(), .cgroup = {}}}, .cgroup = {}};
  request.limit = 32 * kMebibyte;
  SECTION("and at once") {
    const auto sample = sampler.take(request);
    REQUIRE(sample.over_limit.contains(0));
    CHECK(sample.over_limit.at(0) >= 64 * kMebibyte);
    REQUIRE_FALSE(sample.warnings.empty());
    CHECK_THAT(sample.warnings[0], Contains("rank 4 uses") && Contains("of 32.0 MiB"));
  }
  SECTION("but not if the kernel does") {
    request.kernel_limits = true;
    CHECK(sampler.take(request).over_limit.empty());
  }
  SECTION("and the next sample comes before it can be reached") {
    request.limit = memory_of(::getpid()).own + 2048 * kMebibyte;
    const auto sample = sampler.take(request);
    CHECK(sample.over_limit.empty());
    CHECK(sample.next <= std::chrono::milliseconds(600));
    CHECK(sample.next >= std::chrono::milliseconds(100));
  }
  SECTION("and a rank that does not run holds nothing") {
    request.ranks[0].pid = 0;
    const auto sample = sampler.take(request);
    CHECK(sample.over_limit.empty());
    CHECK(sample.ranks[0].total() == 0);
  }
}

TEST_CASE("a rank that is not in its cgroup is limited without the kernel", "[memory_sampler]") {
  const mgpu::tests::TempDir dir;
  const auto folder = dir.path("mgpu-1-0/attempt_0/rank_0");
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/memory.events") << "oom_kill 0\n";
  std::ofstream(folder + "/memory.current") << "0\n";
  MemorySampler sampler;
  const Touched memory(64 * kMebibyte);
  SampleRequest request{.ranks = {{.rank = 4, .pid = ::getpid(), .cgroup = folder}}, .cgroup = {}};
  request.limit = 32 * kMebibyte;
  request.kernel_limits = true;
  request.whole = false;
  CHECK(sampler.take(request).over_limit.empty());  // it may still move into the cgroup
  request.whole = true;
  const auto sample = sampler.take(request);
  REQUIRE(sample.over_limit.contains(0));
  CHECK(sample.over_limit.at(0) >= 64 * kMebibyte);
  REQUIRE_FALSE(sample.warnings.empty());
  CHECK_THAT(sample.warnings[0],
             Contains("rank 4 could not be started in its memory cgroup, so mgpu-run itself checks "
                      "--worker-memory"));
  request.whole = false;
  CHECK(sampler.take(request).over_limit.contains(0));
}

TEST_CASE("memory that forked loaders share with their rank counts once", "[memory_sampler]") {
  const Touched memory(256 * kMebibyte);
  const ForkedLoader loaders[3];
  const auto alone = memory_of(::getpid()).own;
  MemorySampler sampler;
  SampleRequest request{.ranks = {{.rank = 4, .pid = ::getpid(), .cgroup = {}}}, .cgroup = {}};
  request.whole = false;
  request.limit = 2 * alone;
  for (int i = 0; i < 8; ++i) {
    request.time = std::chrono::seconds(10 * i);
    const auto sample = sampler.take(request);
    CHECK(sample.ranks[0].total() > request.limit);
    CHECK(sample.over_limit.empty());
    CHECK(sample.warnings.empty());
    CHECK(sample.bytes_per_minute[0] == 0);
  }
}

TEST_CASE("a GPU that fills up is reported with the processes that use it", "[memory_sampler]") {
  GpuState state;
  const mgpu::tests::LoadedNvml nvml("3", "");
  GpuSampler sampler({"GPU-1", "2", "MIG-7"}, true);
  const auto own = std::to_string(::getpid());
  std::vector<std::string> lines;
  for (int i = 0; i < 8; ++i) {
    state.show("2 " + std::to_string(77'000 + 100 * i) + " " + own + ":70000 999999:7000\n");
    const auto sample = sampler.take(0, std::chrono::seconds(10 * i));
    REQUIRE(sample.gpus.size() == 2);
    CHECK(sample.gpus[0].gpu == 1);
    CHECK(sample.gpus[1].gpu == 2);
    CHECK(sample.gpus[1].activity.utilization == 98);
    CHECK(sample.gpus[1].activity.temperature == 61);
    lines.insert(lines.end(), sample.warnings.begin(), sample.warnings.end());
  }
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0],
             Contains("GPU 2: 75.5 of 80.0 GiB, growing 0.6 GiB a minute: full in about 8 "
                      "minutes; pid " +
                      own + " ("));
  CHECK_THAT(lines[0], Contains("uses 68.4 GiB, pid 999999 (not running here) uses 6.8 GiB"));
}

TEST_CASE("process ids of another pid namespace name no process of this one", "[job_gpus]") {
  GpuState state;
  const mgpu::tests::LoadedNvml nvml("1", "");
  state.show("0 70000 " + std::to_string(::getpid()) + ":69000\n");
  const auto holders = JobGpus({"0"}, false).holders(0);
  REQUIRE(holders.size() == 1);
  CHECK(holders[0].program.empty());
  CHECK(holders_text(holders) ==
        "a process whose id is not visible in this container uses 67.4 GiB");
  CHECK_FALSE(JobGpus({"0"}, true).holders(0).at(0).program.empty());
}

TEST_CASE("a hot GPU is reported once", "[memory_sampler]") {
  const mgpu::tests::LoadedNvml nvml("2", "", "hot");
  GpuSampler sampler({"0", "1"}, true);
  std::vector<std::string> lines;
  for (int i = 0; i < 5; ++i)
    for (auto& line : sampler.take(0, std::chrono::seconds(10 * i)).warnings) lines.push_back(line);
  CHECK(lines == std::vector<std::string>{"GPU 1 (61 °C) runs at a reduced clock because of heat"});
}

TEST_CASE("memory of a GPU that running processes explain is not left over", "[job_gpus]") {
  const GpuReading reading{.gpu = 0, .memory = {.total = 80'000, .used = 50'000}, .activity = {}};
  CHECK(undrained(reading, {}) == 50'000);
  CHECK(undrained(reading, {{.pid = 1, .bytes = 49'000, .program = "serve"}}) == 1'000);
  CHECK(undrained(reading, {{.pid = 1, .bytes = 49'000, .program = ""}}) == 50'000);
  CHECK(undrained(reading, {{.pid = 1, .bytes = 60'000, .program = "serve"}}) == 0);
}
