#include "launcher/memory/monitor.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/support/catch.hpp"
#include "tests/support/loaded_nvml.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

// A monitor in an event loop, for ranks of which only rank 0 runs: this process.
struct MonitoredJob {
  explicit MonitoredJob(std::vector<std::string> gpus, std::uint64_t limit = 0,
                        bool kernel_pids = true)
      : monitor(io, std::move(gpus), "", limit,
                {.note = [this](auto line) { notes.emplace_back(line); },
                 .running = [](int rank) { return rank == 0 ? ::getpid() : 0; },
                 .kill = [this](int rank) { killed.push_back(rank); },
                 .sampled = [this](const auto&, const auto&) { ++samples; }},
                kernel_pids) {}

  // Runs the loop until the condition is true.
  template <class Condition>
  bool until(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (!condition() && std::chrono::steady_clock::now() < deadline) io.run_one_for(100ms);
    return condition();
  }

  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  std::vector<std::string> notes;
  std::vector<int> killed;
  int samples = 0;
  MemoryMonitor monitor;
};

class GpuFile {
 public:
  GpuFile() { ::setenv("FAKE_NVML_STATE", dir_.path("state").c_str(), 1); }
  GpuFile(const GpuFile&) = delete;
  GpuFile& operator=(const GpuFile&) = delete;
  ~GpuFile() { ::unsetenv("FAKE_NVML_STATE"); }
  void show(const std::string& lines) {
    std::ofstream(dir_.path("new")) << lines;
    std::filesystem::rename(dir_.path("new"), dir_.path("state"));
  }
  // From now on NVML does not answer, until show() and then answer().
  void hold() {
    REQUIRE(::mkfifo(dir_.path("held").c_str(), 0600) == 0);
    std::filesystem::create_hard_link(dir_.path("held"), dir_.path("new"));
    std::filesystem::rename(dir_.path("new"), dir_.path("state"));
  }
  // A writer that comes and goes ends the wait.
  void answer() { ::close(::open(dir_.path("held").c_str(), O_RDWR | O_CLOEXEC)); }

 private:
  mgpu::tests::TempDir dir_;
};

}  // namespace

TEST_CASE("a rank above its limit is killed once, with a note where no cgroup limits it",
          "[memory_monitor]") {
  const std::vector<char> held(8 << 20, 'x');
  MonitoredJob job({}, 1 << 20);
  const RankCgroups none("", "", 0);
  job.monitor.begin_attempt(4, 2, none);
  CHECK_THAT(job.notes.at(0), Contains("cannot create a memory cgroup"));
  REQUIRE(job.until([&] { return !job.killed.empty(); }));
  CHECK(job.killed == std::vector{0});
  job.monitor.end_attempt();
  MemoryFacts facts;
  job.monitor.complete(facts, 0, ::getpid(), {});
  CHECK(facts.killed_at_bytes > 1 << 20);
  CHECK(facts.rank_limit_bytes == 1 << 20);
  const auto cause = diagnose({.report = {.signal = SIGKILL}, .memory = facts});
  CHECK(cause.kind == Cause::Kind::host_oom);
  CHECK_THAT(cause.text, Contains("more than --worker-memory 1.0 MiB, so mgpu-run killed them"));
  job.monitor.begin_attempt(4, 2, none);
  MemoryFacts next;
  job.monitor.complete(next, 0, ::getpid(), {});
  CHECK(next.killed_at_bytes == 0);
}

TEST_CASE("a driver that does not answer delays neither samples nor the limit of a rank",
          "[memory_monitor]") {
  GpuFile gpus;
  const mgpu::tests::LoadedNvml nvml("1", "");
  gpus.hold();
  MonitoredJob job({"0"}, memory_of(::getpid()).own + (64 << 20));
  const RankCgroups none("", "", 0);
  job.monitor.begin_attempt(4, 2, none);
  REQUIRE(job.until([&] { return job.samples > 0; }));
  const std::vector<char> held(128 << 20, 'x');
  CHECK(job.until([&] { return !job.killed.empty(); }));
  CHECK(job.killed == std::vector{0});
  job.monitor.end_attempt();
  gpus.show("0 4\n");
  gpus.answer();
}

TEST_CASE("the kernel's log tells which process of the rank it killed", "[memory_monitor]") {
  MonitoredJob job({});
  job.monitor.begin_attempt(0, 2, RankCgroups("", "", 0));
  MemoryFacts facts;
  job.monitor.complete(facts, 0, 4711, {{.pid = 9, .name = "other", .bytes = 5}});
  CHECK(facts.victim.empty());
  CHECK(facts.oom_kills == 0);
  job.monitor.complete(facts, 0, 4711, {{.pid = 4711, .name = "python3", .bytes = 3ull << 30}});
  CHECK(facts.oom_kills == 1);
  const auto cause = diagnose({.report = {.signal = SIGKILL}, .memory = facts});
  CHECK_THAT(
      cause.text,
      Contains("the kernel killed the rank's process python3 (pid 4711), which used 3.0 GiB"));
}

TEST_CASE("a pid in the kernel's log that is of another pid namespace names no process",
          "[memory_monitor]") {
  MonitoredJob job({}, 0, false);
  job.monitor.begin_attempt(0, 2, RankCgroups("", "", 0));
  MemoryFacts facts;
  job.monitor.complete(facts, 0, 4711, {{.pid = 4711, .name = "other", .bytes = 3ull << 30}});
  CHECK(facts.victim.empty());
  CHECK(facts.oom_kills == 0);
}

TEST_CASE("a restart waits until the GPU memory of ended ranks is free", "[memory_monitor]") {
  GpuFile gpus;
  const mgpu::tests::LoadedNvml nvml("2", "");
  MonitoredJob job({"0", "1"});
  bool free = false;
  SECTION("at once if there are no GPUs") {
    MonitoredJob without({});
    without.monitor.when_drained([&] { free = true; });
    CHECK(free);
  }
  SECTION("for a moment if it drains") {
    gpus.show("0 70000 999999:70000\n1 0\n");
    job.monitor.when_drained([&] { free = true; });
    for (int events = 0; events < 5; ++events) job.io.run_one_for(60s);
    CHECK_FALSE(free);
    gpus.show("0 4\n1 0\n");
    CHECK(job.until([&] { return free; }));
    CHECK(job.notes.empty());
  }
  SECTION("and not for long if it does not, which is reported with the process") {
    gpus.show("0 0\n1 70000 999999:70000\n");
    job.monitor.when_drained([&] { free = true; });
    CHECK(job.until([&] { return free; }));
    REQUIRE(job.notes.size() == 1);
    CHECK_THAT(
        job.notes[0],
        Contains("GPU memory is still in use after the previous attempt: GPU 1: 68.4 of 80.0 GiB "
                 "in use, pid 999999 (not running here) uses 68.4 GiB; restarting anyway"));
  }
  SECTION("and not for programs that run, which are named") {
    const auto own = std::to_string(::getpid());
    gpus.show("0 0\n1 70000 " + own + ":69900\n");
    job.monitor.when_drained([&] { free = true; });
    CHECK(job.until([&] { return free; }));
    REQUIRE(job.notes.size() == 1);
    CHECK_THAT(job.notes[0],
               Contains("other programs use GPU memory: GPU 1") && Contains("pid " + own + " ("));
  }
}

TEST_CASE("a restart that replaces one during its wait for GPU memory is not lost",
          "[memory_monitor]") {
  GpuFile gpus;
  const mgpu::tests::LoadedNvml nvml("2", "");
  MonitoredJob job({"0", "1"});
  bool first = false, second = false;
  gpus.show("0 0\n1 70000 999999:70000\n");
  job.monitor.when_drained([&] { first = true; });
  job.io.run_one_for(60s);  // the first answer sets the timer
  gpus.hold();
  job.monitor.when_drained([&] { second = true; });
  // While the second answer is awaited, the end of the first's time limit and its timer.
  for (int events = 0; events < 2; ++events) job.io.run_one_for(60s);
  gpus.show("0 0\n1 70000 999999:70000\n");
  gpus.answer();
  for (int events = 0; events < 3; ++events) job.io.run_one_for(60s);
  CHECK_FALSE(second);
  gpus.show("0 4\n1 0\n");
  CHECK(job.until([&] { return second; }));
  CHECK_FALSE(first);
  CHECK(job.notes.empty());
}
