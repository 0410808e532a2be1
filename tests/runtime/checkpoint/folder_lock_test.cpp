#include "runtime/checkpoint/folder_lock.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::checkpoint;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

const LockingJob kJob{.cookie = "a", .run_id = "none"};
const LockingJob kOther{.cookie = "b", .run_id = "none"};
const LockingJob kRestarted{.cookie = "a", .run_id = "none", .is_restart = true};
constexpr FolderLock::Patience kNone{0ms, 0ms};

}  // namespace

TEST_CASE("two jobs that use one folder do not mix their files", "[folder_lock]") {
  const mgpu::tests::TempDir dir;
  const std::string folder = dir.root().string();
  {
    const FolderLock lock(folder, kJob);
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    CHECK_THROWS_WITH(FolderLock(folder, kOther, kNone),
                      fmt::format("{0} is in use by process {1} on {2}; wait until that job has "
                                  "ended, or use another folder (if its machine has failed, remove "
                                  "{0}/.lock)",
                                  folder, ::getpid(), host));
    SECTION("nor does a restart of another job") {
      LockingJob restarted = kOther;
      restarted.is_restart = true;
      CHECK_THROWS_AS(FolderLock(folder, restarted, kNone), FolderInUse);
    }
    SECTION("nor does the same job if it is no restart") {
      CHECK_THROWS_AS(FolderLock(folder, kJob, kNone), FolderInUse);
    }
  }
  CHECK(fs::is_empty(folder));
  const FolderLock next(folder, kOther, kNone);
}

TEST_CASE("a restarted job gets its folder even if an old rank cannot die", "[folder_lock]") {
  const mgpu::tests::TempDir dir;
  const std::string folder = dir.root().string();
  std::optional<FolderLock> old(std::in_place, folder, kJob);
  const FolderLock lock(folder, kRestarted, kNone);
  CHECK_THROWS_AS(FolderLock(folder, kOther, kNone), FolderInUse);
  old.reset();
  CHECK(fs::exists(folder + "/.lock"));
  CHECK_THROWS_AS(FolderLock(folder, kOther, kNone), FolderInUse);
}

TEST_CASE("a job that restarts on another machine gets its folder by its id", "[folder_lock]") {
  const mgpu::tests::TempDir dir;
  const std::string folder = dir.root().string();
  const FolderLock old(folder, {.cookie = "a", .run_id = "my-run"});
  CHECK_THROWS_AS(FolderLock(folder, {.cookie = "b", .run_id = "my", .is_restart = true}, kNone),
                  FolderInUse);
  const FolderLock lock(folder, {.cookie = "b", .run_id = "my-run", .is_restart = true}, kNone);
}

TEST_CASE("only the user of a job can lock its folder", "[folder_lock]") {
  const mgpu::tests::TempDir dir;
  const std::string folder = dir.root().string(), path = folder + "/.lock";
  const auto mode = [&] { return static_cast<unsigned>(fs::status(path).permissions()); };
  const mode_t before = ::umask(0);
  {
    const FolderLock lock(folder, kJob);
    CHECK(mode() == 0600);
  }
  std::ofstream(path) << "left by an earlier version";
  CHECK(mode() == 0666);
  const FolderLock lock(folder, kJob);
  CHECK(mode() == 0600);
  ::umask(before);
}

TEST_CASE("if another process has the lock of a job that has ended, the message reports that",
          "[folder_lock]") {
  const mgpu::tests::TempDir dir;
  const std::string folder = dir.root().string();
  const FolderLock lock(folder, kJob);
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ::waitpid(ended, nullptr, 0);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  std::ofstream(folder + "/.lock") << fmt::format("{}\n{}\na\nnone\n", ended, host);
  CHECK_THROWS_WITH(
      FolderLock(folder, kOther, kNone),
      fmt::format("{0} is in use: its last job, process {1} on {2}, has ended, but another process "
                  "holds the lock {0}/.lock; end that process (`fuser {0}/.lock` finds it), or use "
                  "another folder",
                  folder, ended, host));
}

TEST_CASE("a job that was killed leaves its folder free", "[folder_lock][fork]") {
  const mgpu::tests::TempDir dir;
  const std::string folder = dir.root().string();
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder, kJob);
    ::raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(fs::exists(folder + "/.lock"));
  const FolderLock lock(folder, kOther, kNone);
}

TEST_CASE("a folder that cannot be locked does not stop a job", "[folder_lock]") {
  const mgpu::tests::TempDir dir;
  fs::create_directory(dir.root() / ".lock");
  const FolderLock lock(dir.root().string(), kJob, kNone);
}
