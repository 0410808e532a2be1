#include "launcher/event_loop/signal_watch.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>

#include <array>
#include <csignal>
#include <string>

#include "rendezvous/base/unique_fd.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using mgpu::rendezvous::UniqueFd;

namespace {

Inherited ignoring(std::initializer_list<int> signals) {
  Inherited inherited;
  for (const int signo : signals) sigaddset(&inherited.ignored, signo);
  return inherited;
}

// What a watch for SIGINT and SIGTERM has reported about signals to this process.
struct Watched {
  boost::asio::io_context io{1};
  std::string log;
  SignalWatch watch;

  explicit Watched(const Inherited& inherited = {})
      : watch(
            io, {SIGINT, SIGTERM}, inherited,
            {.child_changed = [this] { log += "child "; },
             .stop_requested =
                 [this](Signal signal) { log += "stop " + std::to_string(signal.number()) + " "; },
             .kill_requested = [this] { log += "kill "; },
             .suspending = [this](const auto&) { log += "suspending "; },
             .resumed = [this] { log += "resumed "; },
             .passed_on =
                 [this](Signal signal) {
                   log += "pass " + std::to_string(signal.number()) + " ";
                 }}) {}

  std::string after(int signo) {
    log.clear();
    ::raise(signo);
    io.poll();
    return log;
  }
};

// A child process that suspends itself as mgpu-run does; it writes what happens into the pipe.
[[noreturn]] void suspend_child(int pipe) {
  const auto write = [pipe](char letter) {
    if (::write(pipe, &letter, 1) != 1) ::_exit(1);
  };
  boost::asio::io_context io{1};
  const SignalWatch watch(io, {SIGTERM}, {},
                          {.child_changed = [] {},
                           .stop_requested = [](Signal) {},
                           .kill_requested = [] {},
                           .suspending =
                               [&](const auto& ready) {
                                 write('s');
                                 ready();
                               },
                           .resumed =
                               [&] {
                                 write('r');
                                 ::_exit(0);
                               },
                           .passed_on = [](Signal) {}});
  ::raise(SIGTSTP);
  io.run();
  ::_exit(2);
}

}  // namespace

TEST_CASE("a stop signal requests a stop, a second SIGINT an immediate end", "[signals]") {
  Watched watched;
  SECTION("only SIGINT counts") {
    CHECK(watched.after(SIGTERM) == "stop 15 ");
    CHECK(watched.after(SIGTERM) == "stop 15 ");
    CHECK(watched.after(SIGINT) == "stop 2 ");
    CHECK(watched.after(SIGTERM) == "stop 15 ");
    CHECK(watched.after(SIGINT) == "kill ");
  }
  SECTION("a third SIGINT requests a stop again") {
    watched.after(SIGINT);
    CHECK(watched.after(SIGINT) == "kill ");
    CHECK(watched.after(SIGINT) == "stop 2 ");
  }
}

TEST_CASE("signals that are not for mgpu-run are passed on", "[signals]") {
  Watched watched;
  CHECK(watched.after(SIGUSR1) == "pass 10 ");
  CHECK(watched.after(SIGUSR2) == "pass 12 ");
  CHECK(watched.after(SIGWINCH) == "pass 28 ");
  CHECK(watched.after(SIGCHLD) == "child ");
}

TEST_CASE("a signal that was ignored at the start is not watched, except SIGCHLD", "[signals]") {
  // Without a watch SIGWINCH and SIGCHLD have no effect on a process.
  Watched watched(ignoring({SIGWINCH, SIGCHLD}));
  CHECK(watched.after(SIGWINCH).empty());
  CHECK(watched.after(SIGCHLD) == "child ");
  CHECK(watched.after(SIGUSR1) == "pass 10 ");
}

TEST_CASE("a chosen stop signal is not passed on", "[signals]") {
  boost::asio::io_context io{1};
  Signal stopped;
  const SignalWatch watch(io, {SIGUSR1}, {},
                          {.child_changed = [] {},
                           .stop_requested = [&](Signal signal) { stopped = signal; },
                           .kill_requested = [] {},
                           .suspending = [](const auto&) {},
                           .resumed = [] {},
                           .passed_on = [](Signal) { FAIL(); }});
  ::raise(SIGUSR1);
  io.poll();
  CHECK(stopped == Signal(SIGUSR1));
}

TEST_CASE("a second SIGTSTP does not request the suspension again", "[signals]") {
  Watched watched;
  CHECK(watched.after(SIGTSTP) == "suspending ");
  CHECK(watched.after(SIGTSTP).empty());
}

TEST_CASE("SIGTSTP suspends the process until it is continued", "[signals][fork]") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  const UniqueFd from(ends[0]), to(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) suspend_child(to.get());
  std::array<char, 4> letters{};
  const auto written = [&] {
    const auto got = ::read(from.get(), letters.data(), letters.size());
    return std::string(letters.data(), got > 0 ? static_cast<size_t>(got) : 0);
  };

  int status = 0;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  REQUIRE(WIFSTOPPED(status));
  CHECK(written() == "s");
  ::kill(child, SIGCONT);
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(written() == "r");
}
