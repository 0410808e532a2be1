#include "launcher/lifecycle/supervisor.hpp"

#include <csignal>

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using Actions = std::vector<Action>;

namespace {

const ExitReport kOk;
const ExitReport kExitedWith7{.code = 7};
const ExitReport kKilled{.signal = SIGKILL};
const FailureAssessed kAgain{{.restart = true}};
const FailureAssessed kNoMore{};

}  // namespace

TEST_CASE("a job whose ranks all succeed ends with 0", "[supervisor]") {
  Supervisor s(2);
  CHECK(s.start() == Actions{StartRanks{0}});
  CHECK(s.handle(RankExited{1, kOk}).empty());
  CHECK(s.handle(RankExited{0, kOk}) == Actions{StartGrace{}, Sweep{}});
  CHECK(s.handle(TreeEmpty{}) == Actions{Finish{0}});
}

TEST_CASE("the first failure stops the others and sets the exit status", "[supervisor]") {
  Supervisor s(3);
  s.start();
  CHECK(s.handle(RankExited{1, kExitedWith7}) ==
        Actions{AbortRank{0}, AbortRank{2}, StartGrace{true}});
  CHECK(s.first_failed() == 1);
  CHECK(s.stopping());

  SECTION("ranks that die of the stop signal do not change it") {
    CHECK(s.handle(RankExited{0, kKilled}).empty());
    CHECK(s.handle(RankExited{2, kKilled}) == Actions{Sweep{}});
    CHECK(s.handle(TreeEmpty{}) == Actions{AssessFailure{}});
    CHECK(s.handle(kNoMore) == Actions{Finish{7}});
  }
  SECTION("ranks that outlive the grace period are killed with their orphan processes") {
    CHECK(s.handle(RankExited{0, kOk}).empty());
    CHECK(s.handle(GraceExpired{}) == Actions{KillAll{}});
    CHECK(s.handle(RankExited{2, kKilled}) == Actions{Sweep{}});
  }
  SECTION("orphan processes have the rest of the same grace period") {
    s.handle(RankExited{0, kOk});
    CHECK(s.handle(RankExited{2, kOk}) == Actions{Sweep{}});
    CHECK(s.handle(GraceExpired{}) == Actions{KillAll{}});
    CHECK(s.handle(TreeEmpty{}) == Actions{AssessFailure{}});
  }
}

TEST_CASE("a hang kills the rank that caused it, and the others abort", "[supervisor]") {
  Supervisor s(3);
  s.start();
  CHECK(s.handle(HangFound{1}) ==
        Actions{AbortRank{0}, SignalRank{1, SIGKILL}, AbortRank{2}, StartGrace{true}});
  CHECK(s.first_failed() == 1);
  CHECK(s.first_status() == 137);
  CHECK(s.handle(HangFound{0}).empty());

  SECTION("the status stays that of the hang when another rank fails") {
    s.handle(RankExited{0, kExitedWith7});
    s.handle(RankExited{1, kKilled});
    CHECK(s.handle(RankExited{2, kExitedWith7}) == Actions{Sweep{}});
    s.handle(TreeEmpty{});
    CHECK(s.handle(kNoMore) == Actions{Finish{137}});
  }
  SECTION("a restart follows") {
    for (int rank = 0; rank < 3; ++rank) s.handle(RankExited{rank, kKilled});
    s.handle(TreeEmpty{});
    CHECK(s.handle(kAgain) == Actions{StartRanks{1}});
  }
}

TEST_CASE("a hang is no failure once the ranks stop or the rank has exited", "[supervisor]") {
  Supervisor s(2);
  s.start();
  s.handle(RankExited{1, kOk});
  CHECK(s.handle(HangFound{1}).empty());
  s.handle(StopRequested{SIGTERM});
  CHECK(s.handle(HangFound{0}).empty());
  CHECK(s.first_failed() == -1);
}

TEST_CASE("a rank killed by a signal gives 128 plus the signal", "[supervisor]") {
  Supervisor s(1);
  s.start();
  CHECK(s.handle(RankExited{0, kKilled}) == Actions{StartGrace{}, Sweep{}});
  s.handle(TreeEmpty{});
  CHECK(s.handle(kNoMore) == Actions{Finish{137}});
}

TEST_CASE("a restart starts every rank with the next attempt's number", "[supervisor]") {
  Supervisor s(2);
  s.start();
  s.handle(RankExited{0, kExitedWith7});
  s.handle(RankExited{1, kKilled});
  CHECK(s.handle(TreeEmpty{}) == Actions{AssessFailure{}});

  SECTION("at once") {
    CHECK(s.handle(kAgain) == Actions{StartRanks{1}});
    CHECK(s.first_failed() == -1);
    CHECK_FALSE(s.stopping());
    s.handle(RankExited{0, kOk});
    s.handle(RankExited{1, kOk});
    CHECK(s.handle(TreeEmpty{}) == Actions{Finish{0}});
  }
  SECTION("or after a delay") {
    CHECK(s.handle(FailureAssessed{{.restart = true, .delay = 50ms}}) == Actions{StartDelay{50ms}});
    SECTION("that passes") {
      CHECK(s.handle(DelayExpired{}) == Actions{StartRanks{1}});
    }
    SECTION("during which a stop is requested") {
      CHECK(s.handle(StopRequested{SIGTERM}) == Actions{Finish{143}});
      CHECK(s.handle(DelayExpired{}).empty());
    }
  }
}

TEST_CASE("a stop signal is forwarded and the job ends with 128 plus it", "[supervisor]") {
  Supervisor s(2);
  s.start();
  CHECK(s.handle(StopRequested{SIGINT}) ==
        Actions{SignalRank{0, SIGINT}, SignalRank{1, SIGINT}, StartGrace{}});

  SECTION("however the ranks then end") {
    s.handle(RankExited{0, kExitedWith7});
    CHECK(s.handle(RankExited{1, kOk}) == Actions{Sweep{}});
    CHECK(s.handle(TreeEmpty{}) == Actions{Finish{130}});
  }
  SECTION("and a repeated signal changes nothing") {
    CHECK(s.handle(StopRequested{SIGINT}).empty());
  }
  SECTION("and another signal also reaches the ranks that still run") {
    s.handle(RankExited{0, kOk});
    CHECK(s.handle(StopRequested{SIGTERM}) == Actions{SignalRank{1, SIGTERM}});
    CHECK(s.handle(StopRequested{SIGTERM}).empty());
    CHECK(s.handle(RankExited{1, kOk}) == Actions{Sweep{}});
    CHECK(s.handle(TreeEmpty{}) == Actions{Finish{130}});
  }
  SECTION("and a kill request kills all ranks at once") {
    CHECK(s.handle(KillRequested{}) == Actions{KillAll{}});
    CHECK(s.handle(GraceExpired{}) == Actions{KillAll{}});
  }
}

TEST_CASE("a stop signal while ranks are stopped for a failure", "[supervisor]") {
  Supervisor s(2);
  s.start();
  s.handle(RankExited{0, kExitedWith7});
  CHECK(s.handle(StopRequested{SIGTERM}).empty());
  s.handle(RankExited{1, kKilled});
  s.handle(TreeEmpty{});
  SECTION("gives the status of the signal if a restart was left") {
    CHECK(s.handle(kAgain) == Actions{Finish{143}});
  }
  SECTION("and that of the failure if none was left") {
    CHECK(s.handle(kNoMore) == Actions{Finish{7}});
  }
}

TEST_CASE("a stop signal can arrive after all ranks have succeeded", "[supervisor]") {
  Supervisor s(1);
  s.start();
  s.handle(RankExited{0, kOk});
  SECTION("and sets the status while orphan processes are stopped") {
    CHECK(s.handle(StopRequested{SIGTERM}).empty());
    CHECK(s.handle(TreeEmpty{}) == Actions{Finish{143}});
  }
  SECTION("and changes nothing after the end") {
    s.handle(TreeEmpty{});
    CHECK(s.handle(StopRequested{SIGTERM}).empty());
  }
}

// --- In a multi-node job

TEST_CASE("in a multi-node job no rank starts before the leader starts a round", "[supervisor]") {
  Supervisor s(2, true);
  CHECK(s.start().empty());
  CHECK_FALSE(s.active());
  CHECK(s.handle(RoundStarted{4}) == Actions{StartRanks{4}});
  CHECK(s.attempt() == 4);
  CHECK(s.active());
  SECTION("and running ranks are not started twice") {
    CHECK(s.handle(RoundStarted{5}).empty());
    CHECK(s.attempt() == 4);
  }
}

TEST_CASE("in a multi-node job the node reports the end of its ranks and the leader decides",
          "[supervisor]") {
  Supervisor s(1, true);
  s.handle(RoundStarted{0});
  s.handle(RankExited{0, GENERATE(ExitReport{}, ExitReport{.code = 7})});
  CHECK(s.handle(TreeEmpty{}) == Actions{AssessFailure{}});
  SECTION("another round") {
    CHECK(s.handle(RoundStarted{1}) == Actions{StartRanks{1}});
    CHECK(s.first_failed() == -1);
    CHECK_FALSE(s.was_stopped());
  }
  SECTION("the end of the job, with the status of the job") {
    CHECK(s.handle(JobFinished{3}) == Actions{Finish{3}});
    CHECK(s.handle(RoundStarted{1}).empty());
    CHECK(s.handle(JobFinished{4}).empty());
    CHECK(s.handle(StopRequested{SIGTERM}).empty());
  }
}

TEST_CASE("a round that is stopped is no failure", "[supervisor]") {
  Supervisor s(2, true);
  s.handle(RoundStarted{0});
  CHECK(s.handle(RoundStopRequested{SIGINT}) ==
        Actions{SignalRank{0, SIGINT}, SignalRank{1, SIGINT}, StartGrace{}});
  CHECK(s.was_stopped());
  CHECK(s.handle(RoundStopRequested{SIGINT}).empty());
  s.handle(RankExited{0, kExitedWith7});
  CHECK(s.first_failed() == -1);
  SECTION("and ranks that do not end are killed") {
    CHECK(s.handle(GraceExpired{}) == Actions{KillAll{}});
  }
  CHECK(s.handle(RankExited{1, kKilled}) == Actions{Sweep{}});
  CHECK(s.handle(RoundStarted{1}).empty());  // not until all processes of the last one are gone
  CHECK(s.handle(TreeEmpty{}) == Actions{AssessFailure{}});
  CHECK_FALSE(s.stop_signal());
}

TEST_CASE("the ranks of a round abort if a peer has failed, and save if nodes join",
          "[supervisor]") {
  Supervisor s(2, true);
  s.handle(RoundStarted{0});
  SECTION("abort") {
    CHECK(s.handle(RoundStopRequested{SIGTERM, true}) ==
          Actions{AbortRank{0}, AbortRank{1}, StartGrace{true}});
    CHECK(s.handle(RoundStopRequested{SIGTERM, true}).empty());
    CHECK(s.handle(RoundStopRequested{SIGTERM}).empty());
    CHECK(s.first_failed() == -1);
  }
  SECTION("save") {
    CHECK(s.handle(RoundStopRequested{SIGTERM}) ==
          Actions{SignalRank{0, SIGTERM}, SignalRank{1, SIGTERM}, StartGrace{}});
    CHECK(s.handle(RoundStopRequested{SIGTERM}).empty());
  }
  SECTION("save, until a peer fails meanwhile") {
    s.handle(RoundStopRequested{SIGTERM});
    CHECK(s.handle(RoundStopRequested{SIGTERM, true}) ==
          Actions{AbortRank{0, true}, AbortRank{1, true}});
    CHECK(s.handle(RoundStopRequested{SIGTERM, true}).empty());
  }
}

TEST_CASE("a failure while a round stops is reported before the result of the node",
          "[supervisor]") {
  Supervisor s(1, true);
  s.handle(RoundStarted{0});
  s.handle(RoundStopRequested{SIGTERM});
  CHECK(s.handle(RankExited{0, kKilled}) == Actions{ReportFailure{}, Sweep{}});
  CHECK(s.first_failed() == -1);
}

TEST_CASE("a failure before the stop of the round is reported", "[supervisor]") {
  Supervisor s(2, true);
  s.handle(RoundStarted{0});
  s.handle(RankExited{1, kExitedWith7});
  CHECK(s.handle(RoundStopRequested{SIGTERM}).empty());
  s.handle(RankExited{0, kKilled});
  CHECK(s.handle(TreeEmpty{}) == Actions{AssessFailure{}});
  CHECK(s.first_failed() == 1);
}

TEST_CASE("the end of the job stops running ranks", "[supervisor]") {
  Supervisor s(2, true);
  s.handle(RoundStarted{0});
  s.handle(RankExited{0, kOk});
  CHECK(s.handle(JobFinished{75}) == Actions{SignalRank{1, SIGTERM}, StartGrace{}});
  s.handle(RankExited{1, kKilled});
  CHECK(s.handle(TreeEmpty{}) == Actions{Finish{75}});
}

TEST_CASE(
    "in a multi-node job a stop signal ends the ranks of the node, then the leader is informed",
    "[supervisor]") {
  enum class When { before, in_a_round, between };
  const auto when = GENERATE(When::before, When::in_a_round, When::between);
  Supervisor s(1, true);
  if (when != When::before) s.handle(RoundStarted{0});
  if (when == When::between) {
    s.handle(RankExited{0, kOk});
    s.handle(TreeEmpty{});
  }
  if (when == When::in_a_round) {
    CHECK(s.handle(StopRequested{SIGTERM}) == Actions{SignalRank{0, SIGTERM}, StartGrace{}});
    s.handle(RankExited{0, kKilled});
    CHECK(s.handle(TreeEmpty{}) == Actions{LeaveJob{SIGTERM}});
  } else {
    CHECK(s.handle(StopRequested{SIGTERM}) == Actions{LeaveJob{SIGTERM}});
  }
  CHECK(s.stop_signal() == Signal(SIGTERM));
  CHECK(s.handle(RoundStarted{1}).empty());
  SECTION("and a second signal does not wait for the leader's answer") {
    CHECK(s.handle(StopRequested{SIGTERM}).empty());
    CHECK(s.handle(KillRequested{}) == Actions{Finish{143}});
  }
  SECTION("the answer of the leader ends it") {
    CHECK(s.handle(JobFinished{143}) == Actions{Finish{143}});
  }
  SECTION("and a second signal does not make it leave twice") {
    CHECK(s.handle(StopRequested{SIGINT}).empty());
    CHECK(s.stop_signal() == Signal(SIGTERM));
  }
}

TEST_CASE("a rank that can be replaced does not end the attempt", "[supervisor]") {
  Supervisor s(2);
  s.start();
  CHECK(s.handle(RankExited{1, kKilled, true}) == Actions{ReplaceRank{1, 1}});
  CHECK_FALSE(s.stopping());
  CHECK(s.first_failed() == -1);

  SECTION("the job ends when the new process has ended too") {
    CHECK(s.handle(RankExited{0, kOk}).empty());
    CHECK(s.handle(RankExited{1, kOk}) == Actions{StartGrace{}, Sweep{}});
    CHECK(s.handle(TreeEmpty{}) == Actions{Finish{0}});
  }
  SECTION("replacements are counted from 1 in each attempt") {
    CHECK(s.handle(RankExited{0, kKilled, true}) == Actions{ReplaceRank{0, 2}});
    s.handle(RankExited{0, kKilled});
    s.handle(RankExited{1, kKilled});
    s.handle(TreeEmpty{});
    CHECK(s.handle(kAgain) == Actions{StartRanks{1}});
    CHECK(s.handle(RankExited{0, kKilled, true}) == Actions{ReplaceRank{0, 1}});
  }
  SECTION("a second death that cannot be replaced restarts all ranks") {
    CHECK(s.handle(RankExited{1, kKilled}) == Actions{AbortRank{0}, StartGrace{true}});
    CHECK(s.first_failed() == 1);
    CHECK(s.handle(RankExited{0, kKilled}) == Actions{Sweep{}});
    CHECK(s.handle(TreeEmpty{}) == Actions{AssessFailure{}});
    CHECK(s.handle(kAgain) == Actions{StartRanks{1}});
  }
}

TEST_CASE("a rank is not replaced while the ranks stop, nor after success", "[supervisor]") {
  Supervisor s(2);
  s.start();
  SECTION("stopping") {
    s.handle(StopRequested{SIGTERM});
    CHECK(s.handle(RankExited{1, kKilled, true}) == Actions{AbortRank{0, true}});
  }
  SECTION("success") {
    CHECK(s.handle(RankExited{1, kOk, true}).empty());
    CHECK(s.handle(RankExited{0, kOk}) == Actions{StartGrace{}, Sweep{}});
  }
}

TEST_CASE("a stop that kills a new process aborts the ranks that wait for it", "[supervisor]") {
  Supervisor s(3);
  s.start();
  s.handle(RankExited{1, kKilled, true});
  CHECK(s.handle(StopRequested{SIGTERM}).size() == 4);
  CHECK(s.handle(RankExited{1, {.signal = SIGTERM}}) ==
        Actions{AbortRank{0, true}, AbortRank{2, true}});
  CHECK(s.handle(RankExited{0, kKilled}).empty());
  CHECK(s.handle(RankExited{2, kKilled}) == Actions{Sweep{}});
  CHECK(s.handle(TreeEmpty{}) == Actions{Finish{128 + SIGTERM}});
}

TEST_CASE("ranks that save before a stop do not wait for one that failed meanwhile",
          "[supervisor]") {
  Supervisor s(3);
  s.start();
  s.handle(StopRequested{SIGINT});
  s.handle(StopRequested{SIGTERM});
  SECTION("a kill or an error") {
    const auto report = GENERATE(kKilled, kExitedWith7);
    CHECK(s.handle(RankExited{1, report}) == Actions{AbortRank{0, true}, AbortRank{2, true}});
    CHECK(s.failed_while_stopping() == 1);
    CHECK(s.first_failed() == -1);
    CHECK(s.handle(RankExited{0, {.signal = SIGSEGV}}).empty());
    CHECK(s.failed_while_stopping() == 1);
    CHECK(s.handle(RankExited{2, kKilled}) == Actions{Sweep{}});
    CHECK(s.handle(TreeEmpty{}) == Actions{Finish{128 + SIGINT}});
  }
  SECTION("one that ended as requested has not failed") {
    const ExitReport reports[] = {kOk,
                                  {.signal = SIGTERM},
                                  {.signal = SIGINT},
                                  {.code = 128 + SIGTERM},
                                  {.code = 128 + SIGINT},
                                  {.code = 127}};
    const auto report = reports[GENERATE(0, 1, 2, 3, 4, 5)];
    CAPTURE(report.code, report.signal.number());
    CHECK(s.handle(RankExited{1, report}).empty());
    CHECK(s.failed_while_stopping() == -1);
  }
  SECTION("nor has one that was killed at the end of the grace period") {
    CHECK(s.handle(GraceExpired{}) == Actions{KillAll{}});
    CHECK(s.handle(RankExited{1, kKilled}).empty());
    CHECK(s.failed_while_stopping() == -1);
  }
}
