#include "rendezvous/processes/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/base/errors.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

bool has_children() {
  siginfo_t about{};
  return ::waitid(P_ALL, 0, &about, WEXITED | WNOHANG | WNOWAIT) == 0;
}

struct Pipe {
  UniqueFd from, to;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot create a pipe");  // also in threads
    from.reset(ends[0]);
    to.reset(ends[1]);
  }
};

std::string read_all(const UniqueFd& fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(fd.get(), buffer, sizeof buffer)) != 0;) {
    if (n < 0 && errno != EINTR) break;
    if (n > 0) text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

ChildSetup shell(const std::string& script) {
  return {.argv = {"/bin/sh", "-c", script},
          .envp = {"PATH=/usr/bin:/bin"},
          .leads = ChildSetup::Leads::group,
          .only_stdio = true};
}

std::string output_of(ChildSetup setup) {
  Pipe out;
  setup.stdout_fd = out.to.get();
  ChildProcess child(spawn_and_confirm(setup));
  out.to.reset();
  auto text = read_all(out.from);
  CHECK(child.wait() == 0);
  return text;
}

std::string line_of(const std::string& text, const std::string& name) {
  const auto begin = text.find(name);
  return begin == text.npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

void do_nothing(int) {}

// Sets what a child could inherit, and restores it.
class UnusualSignals {
 public:
  UnusualSignals() {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &blocked, &mask_);
    ::signal(SIGUSR1, &do_nothing);
    ::signal(SIGUSR2, SIG_IGN);
    ::signal(SIGHUP, SIG_IGN);
  }
  ~UnusualSignals() {
    for (const int signo : {SIGUSR1, SIGUSR2, SIGHUP}) ::signal(signo, SIG_DFL);
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  UnusualSignals(const UnusualSignals&) = delete;
  UnusualSignals& operator=(const UnusualSignals&) = delete;

 private:
  sigset_t mask_{};
};

}  // namespace

TEST_CASE("a child has only the descriptors 0, 1 and 2", "[processes][fork]") {
  const UniqueFd low(::open("/dev/null", O_RDONLY));
  const UniqueFd high(::dup2(low.get(), 700));
  CHECK(output_of(shell("ls /proc/$$/fd; :")) == "0\n1\n2\n");
}

TEST_CASE("a program that cannot be executed is reported with its path and the reason",
          "[processes][fork]") {
  mgpu::tests::TempDir dir;
  const auto missing = dir.path("missing");
  CHECK_THROWS_WITH(spawn_and_confirm({.argv = {missing}}),
                    "cannot run " + missing + ": No such file or directory");
  CHECK_THROWS_WITH(spawn_and_confirm({.argv = {dir.root().string()}}),
                    "cannot run " + dir.root().string() + ": Permission denied");
  CHECK_THROWS_WITH(spawn_and_confirm({.argv = {"sh"}}), Contains("cannot run sh"));
  CHECK_THROWS_WITH(spawn_and_confirm({.argv = {"/bin/true"}, .workdir = missing}),
                    "cannot enter " + missing + ": No such file or directory");
  CHECK_FALSE(has_children());  // no zombie is left
}

TEST_CASE("a step before exec can refuse to continue", "[processes][fork]") {
  const ChildStep step{[](const void* error) { return *static_cast<const int*>(error); }, nullptr};
  ChildSetup setup = shell(":");
  const int refused = E2BIG, accepted = 0;
  setup.last_step = {step.run, &refused};
  CHECK_THROWS_WITH(spawn_and_confirm(setup), "cannot run /bin/sh: Argument list too long");
  setup.last_step = {step.run, &accepted};
  CHECK(ChildProcess(spawn_and_confirm(setup)).wait() == 0);
}

TEST_CASE("without confirmation a failed exec is status 127 and an errno in shared memory",
          "[processes][fork]") {
  void* const memory =
      ::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* const error = static_cast<volatile int*>(memory);
  ChildProcess child(spawn({.argv = {"/nope"}, .exec_error = error}));
  const auto status = child.wait();
  REQUIRE(status);
  CHECK(WEXITSTATUS(*status) == 127);
  CHECK(*error == ENOENT);
  ::munmap(memory, sizeof(int));
}

TEST_CASE("a program is searched in PATH on request", "[processes][fork]") {
  ChildSetup setup = shell("echo found");
  setup.argv[0] = "sh";
  setup.search_path = true;
  CHECK(output_of(setup) == "found\n");
}

TEST_CASE("a child begins with default signals", "[processes][fork]") {
  const UnusualSignals unusual;
  ChildSetup setup{.argv = {"/bin/cat", "/proc/self/status"}};
  SECTION("and none is blocked or ignored") {
    const auto status = output_of(setup);
    CHECK(line_of(status, "SigBlk") == "SigBlk:\t0000000000000000");
    CHECK(line_of(status, "SigIgn") == "SigIgn:\t0000000000000000");
    CHECK(line_of(status, "SigCgt") == "SigCgt:\t0000000000000000");
  }
  SECTION("except those that it is to block, and ignored ones that are to stay so") {
    sigaddset(&setup.blocked, SIGALRM);
    sigaddset(&setup.stay_ignored, SIGUSR2);
    sigaddset(&setup.stay_ignored, SIGINT);  // not ignored here
    const auto status = output_of(setup);
    CHECK(line_of(status, "SigBlk") == "SigBlk:\t0000000000002000");
    CHECK(line_of(status, "SigIgn") == "SigIgn:\t0000000000000800");
  }
  SECTION("while ours stay as they are") {
    setup.workdir = "/";
    char before[4096], after[4096];
    REQUIRE(::getcwd(before, sizeof before));
    output_of(setup);
    REQUIRE(::getcwd(after, sizeof after));
    CHECK(std::string(before) == after);
    struct sigaction action{};
    ::sigaction(SIGUSR1, nullptr, &action);
    CHECK(action.sa_handler == &do_nothing);
    sigset_t mask;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    CHECK(sigismember(&mask, SIGTERM) == 1);
    CHECK(sigismember(&mask, SIGINT) == 0);
  }
}

TEST_CASE("a child leads its own process group or session", "[processes][fork]") {
  ChildSetup setup = shell("read line");
  Pipe in;
  setup.stdin_fd = in.from.get();
  SECTION("a group in our session") {
    const ChildProcess child(spawn_and_confirm(setup));
    CHECK(::getpgid(child.pid()) == child.pid());
    CHECK(::getsid(child.pid()) == ::getsid(0));
  }
  SECTION("a session") {
    setup.leads = ChildSetup::Leads::session;
    const ChildProcess child(spawn_and_confirm(setup));
    CHECK(::getpgid(child.pid()) == child.pid());
    CHECK(::getsid(child.pid()) == child.pid());
  }
  CHECK_FALSE(has_children());
}

TEST_CASE("the destructor of a child kills its group and leaves no zombie", "[processes][fork]") {
  Pipe out;
  ChildSetup setup = shell("sleep 600 & echo begun; wait");
  setup.stdout_fd = out.to.get();
  {
    const ChildProcess child(spawn_and_confirm(setup));
    out.to.reset();
    char begun[6];
    CHECK(::read(out.from.get(), begun, sizeof begun) == sizeof begun);
  }
  CHECK_FALSE(has_children());
  CHECK(read_all(out.from).empty());  // ends when sleep, too, has closed its stdout
}

TEST_CASE("the pidfd of a child shows that it has exited", "[processes][fork]") {
  Pipe in;
  ChildSetup setup = shell("read line; exit 3");
  setup.stdin_fd = in.from.get();
  ChildProcess child(spawn_and_confirm(setup));
  CHECK_FALSE(child.wait_for_exit(0ms));
  CHECK_FALSE(child.has_exited());
  CHECK_FALSE(child.reap());
  in.to.reset();
  CHECK(child.wait_for_exit(60s));
  CHECK(child.has_exited());
  ChildProcess moved = std::move(child);
  CHECK_FALSE(child.running());
  const auto status = moved.reap();
  REQUIRE(status);
  CHECK(WEXITSTATUS(*status) == 3);
  CHECK_FALSE(moved.running());
  CHECK_FALSE(moved.wait());
}

TEST_CASE("children that several threads start share no descriptor and leave no zombie",
          "[processes][fork]") {
  std::vector<std::string> wrong(4);
  std::vector<std::thread> threads;
  for (auto& what : wrong)
    threads.emplace_back([&what] {
      for (int i = 0; i < 25 && what.empty(); ++i) {
        Pipe in, out;
        ChildSetup setup = shell("read line; ls /proc/$$/fd; exit 5");
        setup.stdin_fd = in.from.get();
        setup.stdout_fd = out.to.get();
        ChildProcess child(spawn_and_confirm(setup));
        out.to.reset();
        in.to.reset();  // the child goes on when no other child has this end
        if (const auto text = read_all(out.from); text != "0\n1\n2\n") what = "has " + text;
        const auto status = child.wait();
        if (!status || WEXITSTATUS(*status) != 5) what += "bad status";
        try {
          spawn_and_confirm({.argv = {"/nope"}});
          what += "not reported";
        } catch (const std::runtime_error& error) {
          if (error.what() != std::string("cannot run /nope: No such file or directory"))
            what += error.what();
        }
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::string>(4));
  CHECK_FALSE(has_children());
}
