#include "launcher/ranks/worker_socket.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.hpp"
#include "tests/support/local_socket.hpp"

using mgpu::launcher::CollectiveState;
using mgpu::launcher::WorkerSocket;
using Program = mgpu::tests::LocalConnection;  // of a process of a rank

namespace {

struct Launcher {
  boost::asio::io_context io;
  std::vector<std::string> notes;
  WorkerSocket socket{io, [this](std::string_view line) { notes.emplace_back(line); }};

  Launcher() { socket.begin_attempt(4, 2); }
  void run() {
    io.restart();
    while (io.poll() > 0) {
    }
  }
};

}  // namespace

TEST_CASE("a rank that requests it receives an abort request", "[worker_socket]") {
  Launcher launcher;
  REQUIRE(launcher.socket.address().starts_with("@mgpu-run."));
  Program five(launcher.socket.address());
  Program four(launcher.socket.address());
  five.send("{\"rank\": 5, \"aborts\": true}\n");
  four.send("{\"rank\": 4}\n");
  launcher.run();
  CHECK(launcher.socket.abort(5));
  CHECK_FALSE(launcher.socket.abort(4));
  CHECK(five.received() == "{\"abort\": true}\n");
  CHECK(four.received().empty());
  four.send("{\"rank\": 4, \"aborts\": true, \"of_a_later_version\": [1]}\n");
  launcher.run();
  CHECK(launcher.socket.abort(4));
  CHECK(launcher.notes.empty());
}

TEST_CASE("steps and phases are heartbeats until the connection closes", "[worker_socket]") {
  Launcher launcher;
  std::vector<std::string> heard;
  launcher.socket.on_heartbeat(
      [&](const mgpu::launcher::Heartbeat& beat) {
        heard.push_back(
            fmt::format("{}: {} {}", beat.rank, beat.step.value_or(-1), beat.phase.value_or("-")));
      },
      [&](int rank) { heard.push_back(fmt::format("{} silent", rank)); });
  {
    Program listener(launcher.socket.address());
    listener.send("{\"rank\": 5, \"aborts\": true}\n");
    std::optional<Program> first(launcher.socket.address());
    Program second(launcher.socket.address());
    first->send("{\"rank\": 5, \"phase\": \"loading\"}\n{\"step\": 3}\n");
    launcher.run();
    second.send("{\"rank\": 5, \"step\": 4, \"phase\": \"checkpoint\"}\n");
    launcher.run();
    first.reset();
    launcher.run();
    CHECK(heard == std::vector<std::string>{"5: -1 loading", "5: 3 -", "5: 4 checkpoint"});
    second.send("not JSON\n");
    launcher.run();
    CHECK(heard.back() == "5 silent");
  }
  launcher.run();
  CHECK(heard.size() == 4);
}

TEST_CASE("a connection that reported for several ranks ends for all of them", "[worker_socket]") {
  Launcher launcher;
  std::vector<int> silent;
  launcher.socket.on_heartbeat([](const auto&) {}, [&](int rank) { silent.push_back(rank); });
  Program four(launcher.socket.address());
  std::optional<Program> both(launcher.socket.address());
  both->send("{\"rank\": 5, \"step\": 1}\n{\"rank\": 4, \"step\": 1}\n");
  launcher.run();

  SECTION("if no other connection reports for them") {
    both.reset();
    launcher.run();
    CHECK(silent == std::vector{4, 5});
  }
  SECTION("but not for one that another connection reports for") {
    four.send("{\"rank\": 4, \"step\": 2}\n");
    launcher.run();
    both.reset();
    launcher.run();
    CHECK(silent == std::vector{5});
  }
}

TEST_CASE("what another user sends does not count", "[worker_socket]") {
  if (::geteuid() != 0) return;  // cannot become another user
  Launcher launcher;
  bool heard = false;
  launcher.socket.on_heartbeat([&](const auto&) { heard = true; }, [](int) {});
  REQUIRE(::seteuid(65534) == 0);
  Program stranger(launcher.socket.address());
  REQUIRE(::seteuid(0) == 0);
  stranger.send("{\"rank\": 5, \"step\": 1, \"aborts\": true}\n");
  launcher.run();
  CHECK(stranger.received() == "closed");
  CHECK_FALSE(heard);
  CHECK_FALSE(launcher.socket.abort(5));
  CHECK(launcher.notes.empty());
}

TEST_CASE("a launcher that can make no socket says so and goes on without it", "[worker_socket]") {
  Launcher launcher;  // its loop has the descriptors that it needs
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = ::dup(0);
  ::close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  WorkerSocket socket(launcher.io, [](std::string_view) {});
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(socket.problem() ==
        "cannot create the worker socket, so hangs are not detected, and ranks get SIGTERM when "
        "another rank fails: Too many open files");
  CHECK(socket.address().empty());
  socket.begin_attempt(4, 2);
  CHECK_FALSE(socket.abort(5));
  CHECK_FALSE(socket.request_dumps());
  CHECK_FALSE(socket.can_replace(5));
  CHECK(socket.last_step() == -1);
}

TEST_CASE("a request just before the failure of a peer counts", "[worker_socket]") {
  Launcher launcher;
  Program five(launcher.socket.address());
  five.send("{\"rank\": 5, \"aborts\": true}\n");
  CHECK(launcher.socket.abort(5));  // the loop has not seen the connection yet
}

TEST_CASE("connections are accepted again in the next attempt after descriptors ran out",
          "[worker_socket]") {
  Launcher launcher;
  Program first(launcher.socket.address());
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = ::dup(0);
  ::close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  launcher.run();
  ::setrlimit(RLIMIT_NOFILE, &before);
  REQUIRE(launcher.notes.size() == 1);
  CHECK(launcher.notes.front().ends_with("too many open files; raise ulimit -n"));
  launcher.socket.begin_attempt(4, 2);
  first.send("{\"rank\": 5, \"aborts\": true}\n");
  launcher.run();
  CHECK(launcher.socket.abort(5));
}

TEST_CASE("a rank that can tells in which collective operation it is", "[worker_socket]") {
  Launcher launcher;
  Program five(launcher.socket.address());
  Program four(launcher.socket.address());
  five.send("{\"rank\": 5, \"dumps\": true}\n");
  four.send("{\"rank\": 4}\n");
  launcher.run();
  CHECK(launcher.socket.request_dumps());
  CHECK(five.received() == "{\"dump\": true}\n");
  CHECK(four.received().empty());
  CHECK_FALSE(launcher.socket.collective_of(5));
  five.send(R"({"rank": 5, "collective": {"name": "all-reduce", "sequence": 7, "elements": 64, )"
            "\"waiting\": true}}\n");
  launcher.run();
  CHECK(launcher.socket.collective_of(5) ==
        CollectiveState{.name = "all-reduce", .sequence = 7, .elements = 64, .waiting = true});
  CHECK_FALSE(launcher.socket.collective_of(4));

  SECTION("each request begins anew, and an answer without a collective is none") {
    CHECK(launcher.socket.request_dumps());
    CHECK_FALSE(launcher.socket.collective_of(5));
    const auto none = GENERATE("null", "[]", "{}", "{\"name\": 1}");
    five.send(fmt::format("{{\"rank\": 5, \"collective\": {}}}\n", none));
    launcher.run();
    CHECK_FALSE(launcher.socket.collective_of(5));
    CHECK(launcher.notes.empty());
  }
}

TEST_CASE("a line may arrive in pieces, and several at once", "[worker_socket]") {
  Launcher launcher;
  Program five(launcher.socket.address());
  five.send("{\"rank\": 5}\n{\"rank\": 5, \"abo");
  launcher.run();
  CHECK_FALSE(launcher.socket.abort(5));
  five.send("rts\": true}\n{\"rank\"");
  launcher.run();
  CHECK(launcher.socket.abort(5));
}

TEST_CASE("a sender that breaks the rules is no longer heard, and named once", "[worker_socket]") {
  const auto [line, wrong] = GENERATE(table<std::string, std::string>({
      {"step 5\n", "is not a JSON object"},
      {"[]\n", "is not a JSON object"},
      {"{\"rank\": 6}\n", "names a rank that is not on this node"},
      {"{\"rank\": 3}\n", "names a rank that is not on this node"},
      {"{\"rank\": 99999999999999999999}\n", "names a rank that is not on this node"},
      {"{\"rank\": \"5\"}\n", "names a rank that is not on this node"},
      {"{\"rank\": 5, \"aborts\": 1}\n", "has a value for \"aborts\" that is not true or false"},
      {"{\"rank\": 5, \"dumps\": 1}\n", "has a value for \"dumps\" that is not true or false"},
      {"{\"rank\": 5, \"step\": 1, \"busy_ms\": -1}\n",
       "has a value for \"busy_ms\" that is not a number from 0 to 1e9"},
      {"{\"rank\": 5, \"step\": 1, \"busy_ms\": 1e300}\n",
       "has a value for \"busy_ms\" that is not a number from 0 to 1e9"},
      {"{\"rank\": 5, \"phase\": 1}\n",
       "has a value for \"phase\" that is not a word of at most 64 letters"},
      {"{\"rank\": 5, \"phase\": \"two words\"}\n",
       "has a value for \"phase\" that is not a word of at most 64 letters"},
      {"{\"rank\": 5, \"phase\": \"" + std::string(65, 'a') + "\"}\n",
       "has a value for \"phase\" that is not a word of at most 64 letters"},
      {"{\"rank\": 5, \"step\": -1}\n",
       "has a value for \"step\" that is not a whole number from 0 on"},
      {"{\"rank\": 5, \"step\": 1.5}\n",
       "has a value for \"step\" that is not a whole number from 0 on"},
      {std::string(5000, '[') + "\n", "is too long"},
      {std::string(9000, 'x'), "is too long"},
  }));
  Launcher launcher;
  CAPTURE(line.size(), wrong);
  for (int i = 0; i < 2; ++i) {
    Program five(launcher.socket.address());
    five.send("{\"rank\": 5, \"aborts\": true}\n");
    five.send(line);
    launcher.run();
    CHECK_FALSE(launcher.socket.abort(5));
    CHECK(five.received() == "closed");
  }
  REQUIRE(launcher.notes.size() == 1);
  CHECK(launcher.notes.front() ==
        fmt::format("closed the connection of process {} to the worker socket: its line {}",
                    ::getpid(), wrong));
}

TEST_CASE("the first line of a connection names the rank", "[worker_socket]") {
  Launcher launcher;
  Program program(launcher.socket.address());
  program.send("{\"aborts\": true}\n");
  launcher.run();
  CHECK(program.received() == "closed");
  REQUIRE(launcher.notes.size() == 1);
  CHECK(launcher.notes.front().ends_with("does not name its rank"));
}

TEST_CASE("the last step is the highest that a rank reported in the attempt", "[worker_socket]") {
  Launcher launcher;
  CHECK(launcher.socket.last_step() == -1);
  Program five(launcher.socket.address()), four(launcher.socket.address());
  five.send("{\"rank\": 5, \"step\": 7}\n{\"step\": 8}\n");
  launcher.run();
  four.send("{\"rank\": 4, \"step\": 7}\n");
  CHECK(launcher.socket.last_step() == 8);
  // Sent just before its rank ended: the loop has not seen the connection yet.
  Program(launcher.socket.address()).send("{\"rank\": 4, \"step\": 9}\n");
  CHECK(launcher.socket.last_step() == 9);
  launcher.socket.begin_attempt(4, 2);
  CHECK(launcher.socket.last_step() == -1);
}

TEST_CASE("connections of an earlier attempt are closed", "[worker_socket]") {
  Launcher launcher;
  Program five(launcher.socket.address());
  five.send("{\"rank\": 5, \"aborts\": true}\n");
  launcher.run();
  launcher.socket.begin_attempt(4, 2);
  CHECK(five.received() == "closed");
  CHECK_FALSE(launcher.socket.abort(5));
}

TEST_CASE("one rank cannot use up all descriptors of the launcher", "[worker_socket]") {
  Launcher launcher;
  std::vector<Program> programs;
  for (int i = 0; i < 40; ++i) programs.emplace_back(launcher.socket.address());
  launcher.run();
  int closed = 0;
  for (auto& program : programs) closed += program.received() == "closed";
  CHECK(closed == 8);
  REQUIRE(launcher.notes.size() == 1);
  CHECK(launcher.notes.front() ==
        fmt::format("closed a connection of process {} to the worker socket: 32 are open already",
                    ::getpid()));
}

TEST_CASE("a rank can be replaced when all others have said that they can go on",
          "[worker_socket]") {
  Launcher launcher;
  Program five(launcher.socket.address());
  Program four(launcher.socket.address());
  four.send("{\"rank\": 4, \"replaces\": true}\n");
  five.send("{\"rank\": 5}\n");
  launcher.run();
  CHECK(launcher.socket.can_replace(5));
  CHECK_FALSE(launcher.socket.can_replace(4));

  SECTION("each of them gets the request once, and then announces itself again") {
    launcher.socket.replace(5, 3);
    CHECK(four.received() == "{\"replace\": 3}\n");
    CHECK(five.received().empty());
    CHECK_FALSE(launcher.socket.can_replace(5));
    four.send("{\"replaces\": true}\n");
    CHECK(launcher.socket.can_replace(5));
  }
  SECTION("the lost process is forgotten, and all ranks are ready with the new one") {
    int ready = 0;
    launcher.socket.on_ready([&] { ++ready; });
    five.send("{\"replaces\": true}\n");
    launcher.socket.take_waiting();
    CHECK(ready == 1);
    launcher.socket.replace(5, 1);
    four.send("{\"replaces\": true}\n");
    five.send("{\"replaces\": true}\n");
    launcher.socket.take_waiting();
    CHECK(ready == 1);
    Program again(launcher.socket.address());
    again.send("{\"rank\": 5, \"replaces\": true}\n");
    launcher.socket.take_waiting();
    CHECK(ready == 2);
  }
  SECTION("a rank can take it back") {
    four.send("{\"replaces\": false}\n");
    CHECK_FALSE(launcher.socket.can_replace(5));
  }
  SECTION("a new attempt begins without any") {
    launcher.socket.begin_attempt(4, 2);
    CHECK_FALSE(launcher.socket.can_replace(5));
  }
}
