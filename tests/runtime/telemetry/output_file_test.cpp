#include "runtime/telemetry/output_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "tests/runtime/telemetry/support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::telemetry;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

// Simulates a full disk: while it lives, files of this process cannot grow beyond the limit.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

}  // namespace

TEST_CASE("a record that does not fit is removed, and reported once", "[output]") {
  TempDir dir(TempDir::in_memory());
  std::vector<std::string> errors;
  OutputFile file(dir.path("log"), [&](const std::string& what) { errors.push_back(what); });
  file.append("12345678\n");
  {
    const FullDisk full(16);
    file.append("12345678\n");
    file.append("12345678\n");
    CHECK(read_text(dir.path("log")) == "12345678\n");
  }
  file.append("again\n");
  CHECK(read_text(dir.path("log")) == "12345678\nagain\n");
  REQUIRE(errors.size() == 1);
  CHECK_THAT(errors[0], Contains("cannot write " + dir.path("log")));
  CHECK_THAT(errors[0], Contains("training continues without it"));
}

TEST_CASE("a full device is reported once", "[output]") {
  std::vector<std::string> errors;
  OutputFile file("/dev/full", [&](const std::string& what) { errors.push_back(what); });
  file.append("x");
  file.append("x");
  REQUIRE(errors.size() == 1);
  CHECK_THAT(errors[0], Contains("No space left on device"));
}

TEST_CASE("a file that cannot be opened is reported once and ignores records", "[output]") {
  std::vector<std::string> errors;
  OutputFile file("/nope/log", [&](const std::string& what) { errors.push_back(what); });
  file.append("x");
  CHECK(errors ==
        std::vector<std::string>{
            "cannot open /nope/log: No such file or directory; training continues without it"});
}

TEST_CASE("appending continues after the bytes that are kept", "[output]") {
  TempDir dir(TempDir::in_memory());
  write_text(dir.path("log"), "one\ntwo\n");
  OutputFile file(dir.path("log"), [](const std::string& what) { FAIL(what); }, 4);
  file.append("three\n");
  CHECK(read_text(dir.path("log")) == "one\nthree\n");
}

TEST_CASE("a file that cannot be replaced stays unchanged", "[output]") {
  TempDir dir(TempDir::in_memory());
  write_text(dir.path("results"), "old");
  std::string told;
  const auto on_error = [&](const std::string& what) { told = what; };
  {
    const FullDisk full(4);
    replace_file(dir.path("results"), "new and longer", on_error);
  }
  CHECK(read_text(dir.path("results")) == "old");
  CHECK_THAT(told, Contains("cannot write " + dir.path("results")));
  CHECK_FALSE(std::filesystem::exists(dir.path("results.part")));
  replace_file(dir.path("results"), "new and longer", [](const std::string& what) { FAIL(what); });
  CHECK(read_text(dir.path("results")) == "new and longer");
}

TEST_CASE("writing to a closed pipe raises no signal", "[output]") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  ::close(ends[0]);
  const auto before = ::signal(SIGPIPE, SIG_DFL);
  CHECK_FALSE(write_all(ends[1], "nobody reads this"));
  sigset_t pending;
  ::sigpending(&pending);
  CHECK(::sigismember(&pending, SIGPIPE) == 0);
  ::signal(SIGPIPE, before);
  ::close(ends[1]);
}
