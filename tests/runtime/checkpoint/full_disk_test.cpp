#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/file_images.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::checkpoint;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;

namespace {

// Runs `work` in its own process, whose limits, user and mounts it may change, and returns the
// message that it throws: "" if it throws nothing, "not here" if it returns false.
std::string thrown_elsewhere(const std::function<bool()>& work) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string text;
    try {
      if (!work()) text = "not here";
    } catch (const std::exception& e) {
      text = e.what();
    }
    ::_exit(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0
                                                                                            : 1);
  }
  ::close(ends[1]);
  std::string text;
  char piece[512];
  for (ssize_t got; (got = ::read(ends[0], piece, sizeof piece)) > 0;) text.append(piece, got);
  ::close(ends[0]);
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  return text;
}

void save_large(const std::string& output_dir, std::int64_t step, std::size_t bytes) {
  CheckpointDraft draft(output_dir, step);
  WeightsWriter writer(draft.path(), {{"a", DType::u8, {static_cast<std::int64_t>(bytes)}}});
  writer.write("a", std::vector<std::byte>(bytes));
  draft.publish(writer.finish(), {});
}

// Mounts a file system of one megabyte over `folder`, for this process only.
bool mount_small(const std::string& folder) {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("small", folder.c_str(), "tmpfs", 0, "size=1m") == 0;
}

// Checks that after a failed save the older checkpoint is intact and the partial one is gone.
void check_only_first(const std::string& folder) {
  const std::filesystem::directory_iterator files(folder);
  if (std::distance(begin(files), end(files)) != 1) throw std::runtime_error("something is left");
  if (find_newest_complete(folder).step != 1) throw std::runtime_error("the older one is lost");
}

}  // namespace

TEST_CASE("a full disk is reported before anything is written, and the older save stays",
          "[checkpoint][fork]") {
  const TempDir dir(TempDir::in_memory());
  std::string first;
  const std::string text = thrown_elsewhere([&] {
    if (!mount_small(dir.root())) return false;
    save_large(dir.root(), 1, 100'000);
    try {
      save_large(dir.root(), 2, 2'000'000);
    } catch (const std::exception&) {
      check_only_first(dir.root());
      throw;
    }
    return true;
  });
  if (text == "not here") return;  // needs to be root
  CHECK_THAT(text, Contains("cannot reserve 2.00 MB for") && Contains("model.safetensors") &&
                       Contains("No space left on device") && Contains("kB left") &&
                       Contains("free some space"));
}

TEST_CASE("a full disk is reported before any file is written from memory", "[checkpoint][fork]") {
  const TempDir dir(TempDir::in_memory());
  const std::string text = thrown_elsewhere([&] {
    if (!mount_small(dir.root())) return false;
    save_large(dir.root(), 1, 100'000);
    try {
      const std::vector<std::byte> small(1'000), large(2'000'000);
      CheckpointDraft draft(dir.root(), 2);
      write_images(draft.path(), {{"small", small}, {"state/large", large}}, 2);
    } catch (const std::exception&) {
      check_only_first(dir.root());
      throw;
    }
    return true;
  });
  if (text == "not here") return;
  CHECK_THAT(text, Contains("cannot reserve 2.00 MB for") && Contains("state/large") &&
                       Contains("No space left on device"));
}

TEST_CASE("a disk that becomes full while small files are written is reported too",
          "[checkpoint][fork]") {
  const TempDir dir(TempDir::in_memory());
  const std::string text = thrown_elsewhere([&] {
    if (!mount_small(dir.root())) return false;
    save_large(dir.root(), 1, 100'000);
    try {
      CheckpointDraft draft(dir.root(), 2);
      for (int i = 0; i < 100; ++i)
        write_file(draft.path() + "/" + std::to_string(i), std::string(50'000, 'x'));
    } catch (const std::exception&) {
      check_only_first(dir.root());
      throw;
    }
    return true;
  });
  if (text == "not here") return;
  CHECK_THAT(text, Contains("cannot write") && Contains("No space left on device"));
}

TEST_CASE("a limit on file sizes is reported", "[checkpoint][fork]") {
  const TempDir dir(TempDir::in_memory());
  const std::string text = thrown_elsewhere([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    save_large(dir.root(), 1, 1'000);
    const rlimit limit{50'000, 50'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      save_large(dir.root(), 2, 100'000);
    } catch (const std::exception&) {
      check_only_first(dir.root());
      throw;
    }
    return true;
  });
  CHECK_THAT(text, Contains("File too large") && Contains("ulimit -f"));
}

TEST_CASE("a folder without write permission is reported", "[checkpoint][fork]") {
  const TempDir dir(TempDir::in_memory());
  ::chmod(dir.root().c_str(), 0555);
  const std::string text = thrown_elsewhere([&] {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) return false;
    save_large(dir.root(), 1, 1'000);
    return true;
  });
  ::chmod(dir.root().c_str(), 0755);
  if (text == "not here") return;
  CHECK_THAT(text, Contains("cannot create a folder in " + dir.root().string()) &&
                       Contains("Permission denied") && Contains("choose another output_dir"));
}

TEST_CASE("a read-only file system is reported", "[checkpoint][fork]") {
  const TempDir dir(TempDir::in_memory());
  const std::string text = thrown_elsewhere([&] {
    if (!mount_small(dir.root()) ||
        ::mount("", dir.root().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0)
      return false;
    save_large(dir.root(), 1, 1'000);
    return true;
  });
  if (text == "not here") return;
  CHECK_THAT(text, Contains("Read-only file system") && Contains("mounted read-only"));
}
