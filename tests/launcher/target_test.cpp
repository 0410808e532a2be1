#include "launcher/plan/target.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "rendezvous/base/unique_fd.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;
using mgpu::rendezvous::UniqueFd;
using mgpu::tests::TempDir;

namespace {

std::string write_with_mode(const std::string& path, const std::string& text, mode_t mode = 0644) {
  std::ofstream(path) << text;
  ::chmod(path.c_str(), mode);
  return path;
}

}  // namespace

TEST_CASE("a file that another process has open can be run", "[target][fork]") {
  const TempDir dir;
  const UniqueFd script(
      ::open(write_with_mode(dir.path("a.py"), "pass\n").c_str(), O_RDONLY | O_CLOEXEC));
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  const pid_t other = ::fork();
  if (other == 0) {
    to.reset();
    char byte;
    ::_exit(::read(from.get(), &byte, 1) == 0 ? 0 : 1);
  }
  Options options;
  options.target = fmt::format("/proc/{}/fd/{}", other, script.get());
  CHECK_NOTHROW(resolve_target(options));
  to.reset();
  int status = 0;
  CHECK(::waitpid(other, &status, 0) == other);
}

TEST_CASE("a target becomes the program that is exec'ed", "[target]") {
  TempDir dir;
  const std::string python = write_with_mode(dir.path("py"), "#!/bin/sh\n", 0755);
  ::setenv("PYTHON_EXEC", python.c_str(), 1);
  Options options;
  options.args = {"--lr", "1e-4"};

  SECTION("a .py runs python, unbuffered") {
    options.target = write_with_mode(dir.path("train.py"), "pass\n");
    const auto line = resolve_target(options);
    CHECK(line.argv == std::vector<std::string>{python, "-u", options.target, "--lr", "1e-4"});
    CHECK(line.python);
  }
  SECTION("so does a module, which need not be a file") {
    options.module = true;
    options.target = "pkg.train";
    CHECK(resolve_target(options).argv ==
          std::vector<std::string>{python, "-u", "-m", "pkg.train", "--lr", "1e-4"});
  }
  SECTION("an executable that is not Python runs itself") {
    options.target = write_with_mode(dir.path("prog"), "#!/bin/sh\n", 0755);
    const auto line = resolve_target(options);
    CHECK(line.argv == std::vector<std::string>{options.target, "--lr", "1e-4"});
    CHECK_FALSE(line.python);
  }
  SECTION("an executable with a python shebang runs python") {
    options.target = write_with_mode(dir.path("tool"), "#!/usr/bin/env python3\n", 0755);
    CHECK(resolve_target(options).python);
  }
  SECTION("torch.distributed.launch puts --local-rank before the script's own arguments") {
    options.append_local_rank = true;
    options.target = write_with_mode(dir.path("train.py"), "pass\n");
    CHECK(resolve_target(options).argv == std::vector<std::string>{python, "-u", options.target,
                                                                   "--local-rank=${local_rank}",
                                                                   "--lr", "1e-4"});
  }
  SECTION("a .yaml runs mgpu-train with the --set options") {
    const std::string train = write_with_mode(dir.path("mgpu-train"), "#!/bin/sh\n", 0755);
    ::setenv("MGPU_TRAIN", train.c_str(), 1);
    options.target = write_with_mode(dir.path("t.yaml"), "task: sft\n");
    options.set = {"lr=1"};
    options.args.clear();
    CHECK(resolve_target(options).argv ==
          std::vector<std::string>{train, options.target, "--set", "lr=1"});
    options.only_set = true;  // no file
    options.target = "mgpu-train";
    CHECK(resolve_target(options).argv == std::vector<std::string>{train, "--set", "lr=1"});
    ::unsetenv("MGPU_TRAIN");
  }
  ::unsetenv("PYTHON_EXEC");
}

TEST_CASE("a target that cannot be run is named in one line", "[target]") {
  TempDir dir;
  Options options;
  SECTION("missing") {
    options.target = dir.path("nope.py");
    CHECK_THROWS_WITH(resolve_target(options), Contains("nope.py: No such file or directory"));
  }
  SECTION("a directory") {
    options.target = dir.path(".");
    CHECK_THROWS_WITH(resolve_target(options), Contains("it is a directory"));
  }
  SECTION("a script or a recipe that cannot be read once per rank") {
    const std::string reason = "save it to a file and run that";
    const auto pipe = GENERATE("pipe.py", "pipe", "pipe.yaml");
    options.target = dir.path(pipe);
    REQUIRE(::mkfifo(options.target.c_str(), 0600) == 0);
    CHECK_THROWS_WITH(resolve_target(options), Contains("not a regular file; " + reason));
  }
  SECTION("a descriptor, even of a regular file, because rank 1 has others") {
    const UniqueFd script(
        ::open(write_with_mode(dir.path("a.py"), "pass\n").c_str(), O_RDONLY | O_CLOEXEC));
    const auto link = GENERATE(true, false);
    options.target = "/proc/self/fd/" + std::to_string(script.get());
    if (link) {
      std::filesystem::create_symlink(options.target, dir.path("stdin"));
      options.target = dir.path("stdin");
    }
    CHECK_THROWS_WITH(resolve_target(options),
                      Contains("it is a descriptor of mgpu-run, which the ranks do not share"));
  }
  SECTION("a program without execute permission") {
    options.no_python = true;
    options.target = write_with_mode(dir.path("prog"), "x");
    CHECK_THROWS_WITH(resolve_target(options), Contains("permission denied; run chmod +x"));
  }
  SECTION("an empty YAML") {
    options.target = write_with_mode(dir.path("t.yaml"), "");
    CHECK_THROWS_WITH(resolve_target(options), Contains("the file is empty"));
  }
}
