#include <filesystem>
#include <fstream>

#include "tests/runtime/rewards/sandbox_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

TEST_CASE("ordinary reward functions work in a sandbox", "[rewards][sandbox]") {
  const OpenFile file(std::string(R"(
import asyncio, ctypes, multiprocessing, os, subprocess, tempfile, threading
import beside

def squared(x):
    return x * x

def imports(row):
    return beside.VALUE

def pool(row):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return sum(pool.map(squared, range(4)))

def program(row):
    return int(subprocess.check_output(["sh", "-c", "echo $((40 + 2)) | cat"]))

def thread(row):
    seen = []
    one = threading.Thread(target=lambda: seen.append(3))
    one.start()
    one.join()
    return seen[0]

def temporary(row):
    with tempfile.NamedTemporaryFile("w+") as file:
        file.write("x" * 1000)
        file.flush()
        return os.path.getsize(file.name)

def asynchronous(row):
    async def later():
        await asyncio.sleep(0)
        return 9
    return asyncio.run(later())

def null_device(row):
    with open("/dev/null", "w") as null:
        return null.write("xy")

def random_device(row):
    with open("/dev/urandom", "rb") as random:
        return len(random.read(5))

def secure_mode(row):
    AT_SECURE = 23
    return ctypes.CDLL(None).getauxval(AT_SECURE)  # else LD_LIBRARY_PATH has no effect

def locale(row):
    return os.environ["LC_ALL"] == "C.UTF-8" and "PATH" in os.environ
)") + kDispatch);
  std::ofstream(file.dir.path("beside.py")) << "VALUE = 7\n";
  const std::vector<std::string> names = {
      "imports",      "pool",        "program",       "thread",      "temporary",
      "asynchronous", "null_device", "random_device", "secure_mode", "locale"};
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    for (const auto& settings : {kOut, kIn}) {
      const auto ended = run_as(user, [&] {
        ::setenv("LC_ALL", "C.UTF-8", 1);
        return text_of(Batch(names, {{"prompt", "q"}}).scored_by(file.function("each"), settings));
      });
      CHECK(ended.text == "7 14 42 3 1000 9 2 5 0 1");
    }
  }
}

TEST_CASE("a program below /tmp is found, in the working folder and by its path",
          "[rewards][sandbox]") {
  const OpenFile file("");
  std::ofstream(file.dir.path("score"))
      << "#!/bin/sh\nwhile read q; do echo '{\"scores\":[4]}'; done\n";
  std::filesystem::permissions(file.dir.path("score"), std::filesystem::perms::all);
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    const auto ended = run_as(user, [&] {
      std::filesystem::current_path(file.dir.root());
      return text_of(Batch({"a"}).scored_by("cmd: ./score", kIn));
    });
    CHECK(ended.text == "4");
    const auto by_path = run_as(user, [&] {
      std::filesystem::current_path("/");
      return text_of(Batch({"a"}).scored_by("cmd: sh '" + file.dir.path("score") + "'", kIn));
    });
    CHECK(by_path.text == "4");
  }
}

TEST_CASE("a Python file directly in /tmp can be a reward in a sandbox", "[rewards][sandbox]") {
  const auto path = "/tmp/mgpu_sandbox_" + std::to_string(::getpid()) + ".py";
  std::ofstream(path) << "def fn(completions, **columns):\n    return [5.0] * len(completions)\n";
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    const auto ended = run_as(user, [&] {
      return text_of(Batch({"a"}, {{"prompt", "q"}}).scored_by(path + ":fn", kIn));
    });
    CHECK(ended.text == "5");
  }
  std::filesystem::remove(path);
}

TEST_CASE("a program in a sandbox that fails is reported as one outside", "[rewards][sandbox]") {
  const OpenFile file(
      "import os\n"
      "def quits(completions, **columns):\n"
      "    os._exit(3)\n"
      "def dies(completions, **columns):\n"
      "    os.kill(os.getpid(), 9)\n"
      "def raises(completions, **columns):\n"
      "    raise KeyError('gold')\n");
  const Batch batch({"a"}, {{"prompt", "q"}});
  for (const uid_t user : sandbox_users()) {
    CAPTURE(user);
    const auto failure = [&](const std::string& name, double limit) {
      return run_as(user,
                    [&] {
                      auto settings = kIn;
                      settings["reward_timeout"] = limit;
                      return message_of([&] { batch.scored_by(name, settings); });
                    })
          .text;
    };
    CHECK_THAT(failure(file.function("quits"), 120), Contains("exited with status 3 before"));
    CHECK_THAT(failure(file.function("dies"), 120), Contains("was killed by signal 9"));
    CHECK_THAT(failure(file.function("raises"), 120), Contains("KeyError: 'gold'"));
    CHECK_THAT(failure("cmd: ./not/there", 120), Contains("cannot run ./not/there"));
    CHECK_THAT(failure("cmd: sleep 100", 0.1), Contains("it did not answer in time"));
  }
}
