#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/rewards/external_reward.hpp"
#include "tests/runtime/rewards/rewards_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

// A Python reward file in its own folder.
struct RewardFile {
  TempDir dir;
  std::string path = dir.path("my_rewards.py");

  explicit RewardFile(const std::string& text) { std::ofstream(path) << text; }
  std::string function(const std::string& name) const { return path + ":" + name; }
};

std::string failure(const std::string& name, const Batch& batch,
                    const json& settings = json::object()) {
  return message_of([&] { batch.scored_by(name, settings); });
}

}  // namespace

TEST_CASE("a Python function gets TRL's arguments and every column", "[rewards][child]") {
  const RewardFile file(
      "def fn(prompts, completions, completion_ids, solution, **kwargs):\n"
      "    print('this is no answer')\n"
      "    assert prompts == ['q', 'q'] and completion_ids == [[1, 2], [3]]\n"
      "    assert kwargs['level'] == [7, 7]\n"
      "    return [1.5 if c == s else None for c, s in zip(completions, solution)]\n"
      "def plain(completions):\n"
      "    return [len(c) for c in completions]\n"
      "async def later(completions, **kwargs):\n"
      "    return [0.25] * len(completions)\n");
  Batch batch({"a", "b"}, {{"prompt", "q"}, {"solution", "a"}, {"level", 7}});
  batch.ids = {{1, 2}, {3}};
  CHECK(batch.scored_by(file.function("fn")) == std::vector<Score>{1.5, std::nullopt});
  CHECK(batch.scored_by(file.function("plain")) == std::vector<Score>{1, 1});
  CHECK(batch.scored_by(file.function("later")) == std::vector<Score>{0.25, 0.25});
}

TEST_CASE("completions of conversations are messages, as open-r1's functions read them",
          "[rewards][child]") {
  const RewardFile file(
      "def fn(completions, **kwargs):\n"
      "    return [len(c[0]['content']) for c in completions]\n");
  const Batch asked({"abc"}, {{"prompt", {{{"role", "user"}, {"content", "q"}}}}});
  CHECK(asked.scored_by(file.function("fn")) == std::vector<Score>{3});
  CHECK(Batch({"abcd"}, {{"problem", "q"}}).scored_by(file.function("fn")) ==
        std::vector<Score>{4});
}

TEST_CASE("a request has the prompt as the model read it, not the columns that it was made of",
          "[rewards][child]") {
  const json row{{"ask", "q"}, {"solution", "s"}};
  const auto request_of = [&](const json& prompt) {
    const rewards::CompletionView view{.completion = "c", .row = &row, .prompt = &prompt};
    const auto* one = &view;
    return json::parse(rewards::request_line({&one, 1}));
  };
  const json messages{{{"role", "system"}, {"content", "z"}}, {{"role", "user"}, {"content", "q"}}};
  const auto chat = request_of(messages);
  CHECK(chat["prompts"] == json::array({messages}));
  CHECK(chat["completions"] ==
        json::array({json::array({{{"role", "assistant"}, {"content", "c"}}})}));
  CHECK(chat["columns"] == json{{"ask", {"q"}}, {"solution", {"s"}}});
  const auto text = request_of("z\n\nq");
  CHECK(text["prompts"] == json{"z\n\nq"});
  CHECK(text["completions"] == json{"c"});
}

TEST_CASE("a function is called group by group and its scores keep their positions",
          "[rewards][child]") {
  const RewardFile file(
      "def fn(completions, **kwargs):\n"
      "    return [float(c) + 100 * len(completions) for c in completions]\n");
  Batch batch({"1", "2", "3"}, {{"prompt", "q"}});
  batch.groups = {4, 0, 4};
  CHECK(batch.scored_by(file.function("fn")) == std::vector<Score>{201, 102, 203});
}

TEST_CASE("an error in a reward file is one line that names the reward", "[rewards][child]") {
  const RewardFile file(
      "def fails(completions, **kwargs):\n"
      "    raise KeyError('gold')\n"
      "def nan(completions, **kwargs):\n"
      "    return [float('nan') for c in completions]\n"
      "def short(completions, **kwargs):\n"
      "    return [1.0]\n"
      "def quits(completions, **kwargs):\n"
      "    import os; os._exit(3)\n"
      "def dies(completions, **kwargs):\n"
      "    import os; os.kill(os.getpid(), 9)\n"
      "def nothing(completions, **kwargs):\n"
      "    pass\n"
      "def words(completions, **kwargs):\n"
      "    return ['high', 'low']\n");
  const Batch batch({"a", "b"}, {{"prompt", "q"}});
  const auto expect = [&](const std::string& function, const std::string& words) {
    const auto name = file.function(function);
    const auto message = failure(name, batch);
    CHECK_THAT(message, Contains("reward " + name + ": "));
    CHECK_THAT(message, Contains(words));
    CHECK(message.find('\n') == message.npos);
  };
  expect("fails", "KeyError: 'gold' (" + file.path + ":2)");
  expect("nan", "its score of completion 1 is nan, not a finite number (" + file.path + ":3)");
  expect("nothing",
         "it returned None, not a list with a score for each completion (" + file.path + ":11)");
  expect("words", "its score of completion 1 is 'high', not a number (" + file.path + ":13)");
  expect("short", "it returned 1 scores for 2 completions");
  expect("quits", "exited with status 3 before it answered");
  expect("dies", "was killed by signal 9");
  expect("missing", "has no function missing; it has dies, fails");
  CHECK_THAT(failure("nowhere/x.py:fn", batch), Contains("does not exist"));
  const RewardFile broken("def fn(:\n");
  CHECK_THAT(failure(broken.function("fn"), batch), Contains("SyntaxError"));
}

TEST_CASE("a reward function that reads stdin finds its end instead of requests",
          "[rewards][child]") {
  const RewardFile file(
      "import subprocess, sys\n"
      "def reads(completions, **kwargs):\n"
      "    inner = subprocess.run(['cat'], capture_output=True).stdout\n"
      "    return [float(len(sys.stdin.read()) + len(inner))] * len(completions)\n"
      "def asks(completions, **kwargs):\n"
      "    return [float(input('score? '))] * len(completions)\n");
  const Batch batch({"a"}, {{"prompt", "q"}});
  const json settings{{"reward_timeout", 20}};
  CHECK(batch.scored_by(file.function("reads"), settings) == std::vector<Score>{0});
  CHECK_THAT(failure(file.function("asks"), batch, settings), Contains("EOFError"));
}

TEST_CASE("a reward that never answers fails at its time limit", "[rewards][child]") {
  const Batch batch({"a", "b"});
  const auto begin = std::chrono::steady_clock::now();
  CHECK_THAT(failure("cmd: sleep 100", batch, {{"reward_timeout", 0.1}}),
             Contains("reward cmd: sleep 100: it did not answer in time"));
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
}

TEST_CASE("rewards of other programs are scored at the same time", "[rewards][child]") {
  // Each function waits until the other one has begun.
  const RewardFile file(
      "import os, pathlib, time\n"
      "def meet(own, other):\n"
      "    folder = pathlib.Path(__file__).parent\n"
      "    (folder / own).touch()\n"
      "    while not (folder / other).exists(): time.sleep(0.01)\n"
      "    return [1]\n"
      "def a(completions, **kwargs): return meet('a', 'b')\n"
      "def b(completions, **kwargs): return meet('b', 'a')\n");
  const json row{{"prompt", "q"}};
  const std::vector<rewards::CompletionView> all{{.completion = "c", .row = &row}};
  const auto rewards = rewards::make_rewards({file.function("a"), file.function("b")}, {});
  for (const auto& reward : rewards) reward->begin(all);
  for (const auto& reward : rewards) CHECK(reward->score(all) == std::vector<Score>{1});
}

TEST_CASE("a program that hangs ends with its reward", "[rewards][child]") {
  const TempDir dir;
  const auto path = dir.path("pid");
  const json row{{"prompt", "q"}};
  const std::vector<rewards::CompletionView> all{{.completion = "c", .row = &row}};
  pid_t pid = 0;
  {
    const auto reward = rewards::make_reward(
        "cmd: sh -c 'echo $$ >" + path + ".new; mv " + path + ".new " + path + "; sleep 1000'", {});
    reward->begin(all);
    const auto limit = std::chrono::steady_clock::now() + 60s;
    while (pid == 0 && std::chrono::steady_clock::now() < limit) std::ifstream(path) >> pid;
    REQUIRE(pid > 0);
  }
  CHECK(::kill(pid, 0) == -1);
}

TEST_CASE("with reward_on_error none a failed reward gives no scores and is called again",
          "[rewards][child]") {
  const RewardFile file(
      "import os\n"
      "def fn(completions, **kwargs):\n"
      "    if completions == ['x']: os._exit(1)\n"
      "    return [1.0 for c in completions]\n");
  Batch batch({"x", "a"}, {{"prompt", "q"}});
  batch.groups = {0, 1};
  CHECK(batch.scored_by(file.function("fn"), {{"reward_on_error", "none"}}) ==
        std::vector<Score>{std::nullopt, 1});
}

TEST_CASE("any program can answer lines", "[rewards][child]") {
  const Batch batch({"a"});
  CHECK(batch.scored_by(R"(cmd: sh -c 'while read q; do echo "{\"scores\":[2]}"; done')") ==
        std::vector<Score>{2});
  CHECK_THAT(failure("cmd: echo no", batch), Contains("its answer is not JSON: no"));
  CHECK_THAT(failure("cmd: echo '[1]'", batch), Contains("no list of scores"));
  CHECK_THAT(failure("cmd: echo '{\"scores\":[\"1\"]}'", batch), Contains("not a finite number"));
  CHECK_THAT(failure("cmd: echo '{\"error\":\"out of luck\"}'", batch),
             Contains("it failed: out of luck"));
  CHECK_THAT(failure("cmd: ./not/there", batch), Contains("./not/there"));
  CHECK_THAT(failure("cmd: sh -c 'exec >&-; sleep 100'", batch), Contains("it closed its stdout"));
  CHECK_THAT(failure("cmd: true", batch), Contains("exited with status 0 before it answered"));
}

TEST_CASE("a program may be any command line of the shell", "[rewards][child]") {
  const RewardFile file(
      "import sys\n"
      "for line in sys.stdin: print('{\"scores\":[3]}', flush=True)\n");
  const auto folder = file.path.substr(0, file.path.rfind('/'));
  for (const auto& command :
       {"cd '" + folder + "' && python3 ./my_rewards.py", "A=1 python3 '" + file.path + "'",
        "true; python3 '" + file.path + "'"}) {
    CAPTURE(command);
    CHECK(Batch({"a"}).scored_by("cmd:" + command) == std::vector<Score>{3});
  }
}

TEST_CASE("a large request does not block with a program that reads slowly", "[rewards][child]") {
  const RewardFile file(
      "def fn(completions, **kwargs):\n"
      "    return [float(len(c)) for c in completions]\n");
  const Batch batch({std::string(3'000'000, 'x')}, {{"prompt", "q"}});
  CHECK(batch.scored_by(file.function("fn")) == std::vector<Score>{3'000'000});
}

TEST_CASE("the program of a reward is stopped with the reward", "[rewards][child]") {
  const TempDir dir;
  const auto note = dir.path("pid");
  auto reward = rewards::make_reward(
      "cmd: sh -c 'echo $$ > " + note + "; while read q; do echo \"{\\\"scores\\\":[2]}\"; done'",
      {});
  CHECK(Batch({"a"}).scored_by(*reward) == std::vector<Score>{2});
  pid_t pid = 0;
  std::ifstream(note) >> pid;
  REQUIRE(pid > 0);
  CHECK(::kill(pid, 0) == 0);
  reward.reset();
  CHECK(::kill(pid, 0) != 0);
}

TEST_CASE("a reward program inherits no descriptor of the trainer", "[rewards][child]") {
  // As connections of gloo and epoll sets of libraries are: without the flag that closes them.
  const std::vector<int> open = {::open("/dev/null", O_RDONLY), ::socket(AF_INET, SOCK_STREAM, 0),
                                 ::epoll_create(1), ::dup2(STDERR_FILENO, 900)};
  const RewardFile file(
      "import os\n"
      "def count(completions, **kwargs):\n"
      "    fds = [int(fd) for fd in os.listdir('/proc/self/fd')]\n"
      "    return [sum(os.path.exists(f'/proc/self/fd/{fd}') and fd > 2 for fd in fds)] * len("
      "completions)\n");
  const Batch batch({"a"}, {{"prompt", "q"}});
  // Two are the program's own: its copies of stdin and stdout.
  CHECK(batch.scored_by(file.function("count")) == std::vector<Score>{2});
  for (const int fd : open) ::close(fd);
}

TEST_CASE("files of the current folder are not imported by a reward program", "[rewards][child]") {
  const RewardFile file("def fn(completions, **kwargs):\n    return [1.0] * len(completions)\n");
  const TempDir here;
  const auto before = std::filesystem::current_path();
  for (const char* module : {"asyncio", "json", "os", "importlib", "traceback", "inspect"})
    std::ofstream(here.path(std::string(module) + ".py")) << "raise SystemExit('imported')\n";
  const char* const safe = GENERATE(static_cast<const char*>(nullptr), "");
  if (safe) ::setenv("PYTHONSAFEPATH", safe, 1);  // as Pythons before 3.11 behave: not set
  std::filesystem::current_path(here.root());
  const Batch batch({"a"}, {{"prompt", "q"}});
  const auto problem = message_of([&] { batch.scored_by(file.function("fn")); });
  std::filesystem::current_path(before);
  ::unsetenv("PYTHONSAFEPATH");
  CHECK(problem.empty());
}

TEST_CASE("what a reward file starts has Python's usual environment", "[rewards][child]") {
  const RewardFile file(
      "import os\n"
      "def fn(completions, **kwargs):\n"
      "    return [float('PYTHONSAFEPATH' in os.environ)] * len(completions)\n");
  CHECK(Batch({"a"}, {{"prompt", "q"}}).scored_by(file.function("fn")) == std::vector<Score>{0});
}

TEST_CASE("a Python that dies at its start is noticed at once", "[rewards][child]") {
  const RewardFile file("def fn(completions, **kwargs):\n    return [1.0]\n");
  const TempDir dir;
  const auto python = dir.path("python");
  std::ofstream(python) << "#!/bin/sh\nexit 7\n";
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  const auto start = std::chrono::steady_clock::now();
  const Batch batch({"a"}, {{"prompt", "q"}});
  CHECK_THAT(failure(file.function("fn"), batch, {{"reward_python", python}}),
             Contains("exited with status 7 before it answered"));
  CHECK(std::chrono::steady_clock::now() - start < 30s);
}

TEST_CASE("a Python that cannot be executed is reported with the reason", "[rewards][child]") {
  const RewardFile file("def fn(completions, **kwargs):\n    return [1.0]\n");
  const Batch batch({"a"}, {{"prompt", "q"}});
  CHECK_THAT(failure(file.function("fn"), batch, {{"reward_python", "/nowhere/python"}}),
             Contains("cannot run /nowhere/python: No such file or directory"));
}

TEST_CASE("deeply nested answers are refused in one line", "[rewards][child]") {
  const Batch batch({"a"});
  const TempDir dir;
  const auto printing = [&](const char* expression) {
    std::ofstream(dir.path("program.py")) << "print(" << expression << ")\n";
    return "cmd: python3 " + dir.path("program.py");
  };
  CHECK_THAT(failure(printing(R"('{"scores":' + '[' * 300000 + ']' * 300000 + '}')"), batch),
             Contains("its answer is not JSON"));
  CHECK_THAT(failure(printing(R"('{"scores":[' + '[' * 100 + ']' * 100 + ']}')"), batch),
             Contains("not a finite number"));
}
