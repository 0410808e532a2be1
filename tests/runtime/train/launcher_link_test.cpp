#include "runtime/train/launcher_link.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "runtime/comm/collective_log.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/local_socket.hpp"

using mgpu::rendezvous::Contract;

namespace {

// The launcher's end of the worker socket.
class Launcher {
 public:
  std::string address() const { return listener_.address(); }

  // Runs a rank that waits for ever, or until this connection ends.
  pid_t start_rank() {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    Contract contract;
    contract.rank = 3;
    contract.worker_socket = address();
    mgpu::train::obey_launcher(contract);
    ::alarm(60);
    while (true) ::pause();
  }
  std::string hello() {
    connection_ = listener_.accept();
    return answer();
  }
  std::string answer() { return connection_.receive(); }
  std::string line() { return connection_.line(); }
  void send(std::string_view text) { connection_.send(text); }
  void close() { connection_ = {}; }

 private:
  mgpu::tests::LocalListener listener_{fmt::format("launcher-link-test-{}", ::getpid())};
  mgpu::tests::LocalConnection connection_;
};

}  // namespace

TEST_CASE("a rank ends at once when its launcher says that a peer has failed", "[launcher_link]") {
  Launcher launcher;
  const pid_t rank = launcher.start_rank();
  CHECK(launcher.hello() == "{\"rank\": 3, \"aborts\": true, \"dumps\": true}\n");
  SECTION("whole") {
    launcher.send("{\"abort\": true}\n");
  }
  SECTION("in pieces, after a line of a later version") {
    launcher.send("{\"of_a_later_version\": 1}\n{\"abort\": false}\n{\"ab");
    launcher.send("ort\": true}\n");
  }
  int status = 0;
  CHECK(::waitpid(rank, &status, 0) == rank);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 128 + SIGTERM);
}

TEST_CASE("a rank tells its launcher in which collective it is", "[launcher_link]") {
  auto& collectives = mgpu::comm::collectives();
  collectives.finished(collectives.started("barrier", 1));
  Launcher launcher;
  std::string expected = R"({"collective":{"elements":1,"name":"barrier","sequence":)";
  std::string end = R"(,"waiting":false},"rank":3})";
  auto sequence = collectives.current()->sequence;
  SECTION("that has finished") {}
  SECTION("that has not finished") {
    sequence = collectives.started("all-reduce of gradients", 64);
    expected = R"({"collective":{"elements":64,"name":"all-reduce of gradients","sequence":)";
    end = R"(,"waiting":true},"rank":3})";
  }
  const pid_t rank = launcher.start_rank();
  launcher.hello();
  launcher.send("{\"dump\": true}\n");
  CHECK(launcher.answer() == fmt::format("{}{}{}\n", expected, sequence, end));
  collectives.finished(sequence);
  ::kill(rank, SIGKILL);
  ::waitpid(rank, nullptr, 0);
}

TEST_CASE("a rank outlives its connection to the launcher", "[launcher_link]") {
  Launcher launcher;
  const pid_t rank = launcher.start_rank();
  launcher.hello();
  launcher.close();
  CHECK(::waitpid(rank, nullptr, WNOHANG) == 0);
  ::kill(rank, SIGKILL);
  int status = 0;
  CHECK(::waitpid(rank, &status, 0) == rank);
  CHECK(WTERMSIG(status) == SIGKILL);
}

TEST_CASE("the launcher learns the steps of a rank", "[launcher_link]") {
  Launcher launcher;
  Contract contract;
  contract.rank = 3;
  contract.worker_socket = launcher.address();
  mgpu::train::StepReports reports(contract);
  const auto first = launcher.hello();
  CHECK(first.starts_with("{\"rank\": 3, "));
  for (int step = 7; step < 100; ++step) reports.report(step, 0);
  // The newest one arrives although no other follows, in few lines.
  std::string last;
  int lines = 0;
  while (last.find("\"step\": 99") == std::string::npos && ++lines < 4) last = launcher.line();
  CHECK(lines < 4);
  SECTION("and a launcher that is gone does not matter") {
    launcher.close();
    CHECK_NOTHROW(reports.report(100, 0));
    CHECK_NOTHROW(reports.report(101, 0));
  }
}

TEST_CASE("the launcher learns the phases of a rank and how long it was busy", "[launcher_link]") {
  using mgpu::train::StepReports;
  Launcher launcher;
  Contract contract;
  contract.rank = 3;
  contract.worker_socket = launcher.address();
  StepReports reports(contract);
  CHECK(launcher.hello() == "{\"rank\": 3, \"phase\": \"loading\"}\n");
  reports.report(7, 0);
  CHECK(launcher.line() == "{\"rank\": 3, \"step\": 7}\n");
  {
    const StepReports::Phase evaluation(reports, "evaluation");
    {
      const StepReports::Phase checkpoint(reports, "checkpoint");
      CHECK(launcher.line() == "{\"rank\": 3, \"step\": 7, \"phase\": \"checkpoint\"}\n");
    }
    CHECK(launcher.line() == "{\"rank\": 3, \"step\": 7, \"phase\": \"evaluation\"}\n");
  }
  CHECK(launcher.line() == "{\"rank\": 3, \"step\": 7}\n");
  reports.report(8, 0);  // the phases were between these steps
  reports.report(9, 1000);
  CHECK(launcher.line() == "{\"rank\": 3, \"step\": 9, \"busy_ms\": 0.000}\n");
}

TEST_CASE("a socket that nobody reads costs a rank nothing", "[launcher_link]") {
  Launcher launcher;
  Contract contract;
  contract.worker_socket = launcher.address();
  const auto begin = std::chrono::steady_clock::now();
  {
    mgpu::train::StepReports reports(contract);
    for (int step = 0; step < 1000; ++step) reports.report(step, 0);
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
}

TEST_CASE("without a launcher nothing is obeyed", "[launcher_link]") {
  Contract contract;
  contract.worker_socket = GENERATE("", "nonsense", "@nobody-listens-here");
  CHECK_NOTHROW(mgpu::train::obey_launcher(contract));
  contract.worker_socket = "@" + std::string(500, 'x');
  CHECK_NOTHROW(mgpu::train::obey_launcher(contract));
}
