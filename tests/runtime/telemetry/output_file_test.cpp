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

// Files of this process cannot grow beyond this while it lives: a disk that is full.
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

TEST_CASE("a record that does not fit is taken back and told once", "[output]") {
  TempDir dir(TempDir::in_memory());
  std::vector<std::string> complaints;
  OutputFile file(dir.path("log"), [&](const std::string& what) { complaints.push_back(what); });
  file.append("12345678\n");
  {
    const FullDisk full(16);
    file.append("12345678\n");
    file.append("12345678\n");
    CHECK(read_text(dir.path("log")) == "12345678\n");
  }
  file.append("again\n");
  CHECK(read_text(dir.path("log")) == "12345678\nagain\n");
  REQUIRE(complaints.size() == 1);
  CHECK_THAT(complaints[0], Contains("cannot write " + dir.path("log")));
  CHECK_THAT(complaints[0], Contains("training goes on without it"));
}

TEST_CASE("a device that is full is told once", "[output]") {
  std::vector<std::string> complaints;
  OutputFile file("/dev/full", [&](const std::string& what) { complaints.push_back(what); });
  file.append("x");
  file.append("x");
  REQUIRE(complaints.size() == 1);
  CHECK_THAT(complaints[0], Contains("No space left on device"));
}

TEST_CASE("a file that cannot be opened is told once and takes records all the same", "[output]") {
  std::vector<std::string> complaints;
  OutputFile file("/nope/log", [&](const std::string& what) { complaints.push_back(what); });
  file.append("x");
  CHECK(complaints ==
        std::vector<std::string>{"cannot open /nope/log: No such file or directory; training goes "
                                 "on without it"});
}

TEST_CASE("a file is gone on with behind the bytes that are kept", "[output]") {
  TempDir dir(TempDir::in_memory());
  write_text(dir.path("log"), "one\ntwo\n");
  OutputFile file(dir.path("log"), [](const std::string& what) { FAIL(what); }, 4);
  file.append("three\n");
  CHECK(read_text(dir.path("log")) == "one\nthree\n");
}

TEST_CASE("a file that cannot be replaced stays as it was", "[output]") {
  TempDir dir(TempDir::in_memory());
  write_text(dir.path("results"), "old");
  std::string told;
  const auto complain = [&](const std::string& what) { told = what; };
  {
    const FullDisk full(4);
    replace_file(dir.path("results"), "new and longer", complain);
  }
  CHECK(read_text(dir.path("results")) == "old");
  CHECK_THAT(told, Contains("cannot write " + dir.path("results")));
  CHECK_FALSE(std::filesystem::exists(dir.path("results.part")));
  replace_file(dir.path("results"), "new and longer", [](const std::string& what) { FAIL(what); });
  CHECK(read_text(dir.path("results")) == "new and longer");
}

TEST_CASE("a reader that is gone is no signal", "[output]") {
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
