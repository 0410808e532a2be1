#include "rendezvous/base/small_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "rendezvous/base/unique_fd.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::rendezvous;
using mgpu::tests::TempDir;
using State = SmallFile::State;

TEST_CASE("a small file is read up to its limit", "[small_file]") {
  const TempDir dir;
  const auto path = dir.path("file");
  std::ofstream(path) << "0123456789";
  const auto kind = GENERATE(FileKind::any, FileKind::regular);
  SECTION("a file of exactly the limit is complete") {
    const auto file = read_small_file(path, 10, kind);
    CHECK(file.complete());
    CHECK(file.text == "0123456789");
  }
  SECTION("a larger one is too large, and its first bytes are there") {
    const auto file = read_small_file(path, 9, kind);
    CHECK(file.state == State::too_large);
    CHECK(file.text == "012345678");
  }
  SECTION("a file of several buffers is read whole") {
    const std::string large(100'000, 'x');
    std::ofstream(path) << large;
    CHECK(read_small_file(path, large.size(), kind).text == large);
  }
  SECTION("an empty file is complete with any limit") {
    std::ofstream(path).flush();
    CHECK(read_small_file(path, 0, kind).complete());
  }
}

TEST_CASE("an absent file differs from one that cannot be read", "[small_file]") {
  const TempDir dir;
  CHECK(read_small_file(dir.path("none"), 10).state == State::absent);
  CHECK(read_small_file(dir.path("none"), 10).error == ENOENT);
  std::ofstream(dir.path("file")) << "text";
  CHECK(read_small_file(dir.path("file/below"), 10).state == State::absent);
  CHECK(read_small_file(dir.root(), 10).state == State::unreadable);
  CHECK(read_small_file(dir.root(), 10).error == EISDIR);
  CHECK(read_small_file(-1, 10).error == EBADF);
}

TEST_CASE("only a regular file is read where nothing else is expected", "[small_file]") {
  const TempDir dir;
  REQUIRE(::mkfifo(dir.path("pipe").c_str(), 0600) == 0);
  CHECK(read_small_file(dir.path("pipe"), 10, FileKind::regular).state == State::not_regular);
  CHECK(read_small_file(dir.root(), 10, FileKind::regular).state == State::not_regular);
  CHECK(read_small_file("/dev/null", 10, FileKind::regular).state == State::not_regular);
  CHECK(read_small_file("/dev/null", 10).complete());
}

TEST_CASE("an open pipe is read to its end", "[small_file]") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  REQUIRE(::write(to.get(), "text", 4) == 4);
  to.reset();
  CHECK(read_small_file(from.get(), 10).text == "text");
}

TEST_CASE("files of the kernel are read, whose sizes are unknown", "[small_file]") {
  const auto status = read_kernel_file("/proc/self/status");
  REQUIRE(status);
  CHECK(status->find("Pid:") != std::string::npos);
  CHECK(read_small_file("/proc/self/status", 1 << 20, FileKind::regular).complete());
  CHECK_FALSE(read_kernel_file("/proc/self/none"));
}
