#include "launcher/lifecycle/supervisor.hpp"

#include <csignal>

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using Actions = std::vector<Action>;

namespace {

const ExitReport kOk;
const ExitReport kFailed{.code = 7};
const ExitReport kKilled{.signo = SIGKILL};
const FailureAssessed kAgain{{.restart = true}};
const FailureAssessed kNoMore{};

}  // namespace

TEST_CASE("a job whose ranks all end well ends with 0", "[supervisor]") {
  Supervisor s(2);
  CHECK(s.start() == Actions{StartRanks{0}});
  CHECK(s.handle(RankExited{1, kOk}).empty());
  CHECK(s.handle(RankExited{0, kOk}) == Actions{StartGrace{}, Sweep{}});
  CHECK(s.handle(TreeEmpty{}) == Actions{Finish{0}});
}

TEST_CASE("the first failure stops the others and names the exit status", "[supervisor]") {
  Supervisor s(3);
  s.start();
  CHECK(s.handle(RankExited{1, kFailed}) ==
        Actions{SignalRank{0, SIGTERM}, SignalRank{2, SIGTERM}, StartGrace{}});
  CHECK(s.first_failed() == 1);
  CHECK(s.stopping());

  SECTION("ranks that die of our signal do not change it") {
    CHECK(s.handle(RankExited{0, kKilled}).empty());
    CHECK(s.handle(RankExited{2, kKilled}) == Actions{Sweep{}});
    CHECK(s.handle(TreeEmpty{}) == Actions{AssessFailure{}});
    CHECK(s.handle(kNoMore) == Actions{Finish{7}});
  }
  SECTION("ranks that outlive the grace period are killed with all they left") {
    CHECK(s.handle(RankExited{0, kOk}).empty());
    CHECK(s.handle(GraceExpired{}) == Actions{KillAll{}});
    CHECK(s.handle(RankExited{2, kKilled}) == Actions{Sweep{}});
  }
  SECTION("what the ranks left behind has the rest of the same grace period") {
    s.handle(RankExited{0, kOk});
    CHECK(s.handle(RankExited{2, kOk}) == Actions{Sweep{}});
    CHECK(s.handle(GraceExpired{}) == Actions{KillAll{}});
    CHECK(s.handle(TreeEmpty{}) == Actions{AssessFailure{}});
  }
}

TEST_CASE("a signal's death gives 128 plus the signal", "[supervisor]") {
  Supervisor s(1);
  s.start();
  CHECK(s.handle(RankExited{0, kKilled}) == Actions{StartGrace{}, Sweep{}});
  s.handle(TreeEmpty{});
  CHECK(s.handle(kNoMore) == Actions{Finish{137}});
}

TEST_CASE("a restart starts every rank with the next attempt's number", "[supervisor]") {
  Supervisor s(2);
  s.start();
  s.handle(RankExited{0, kFailed});
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
    SECTION("in which we are told to stop") {
      CHECK(s.handle(StopRequested{SIGTERM}) == Actions{Finish{143}});
      CHECK(s.handle(DelayExpired{}).empty());
    }
  }
}

TEST_CASE("being told to stop hands the signal on and ends with 128 plus it", "[supervisor]") {
  Supervisor s(2);
  s.start();
  CHECK(s.handle(StopRequested{SIGINT}) ==
        Actions{SignalRank{0, SIGINT}, SignalRank{1, SIGINT}, StartGrace{}});

  SECTION("however the ranks end then") {
    s.handle(RankExited{0, kFailed});
    CHECK(s.handle(RankExited{1, kOk}) == Actions{Sweep{}});
    CHECK(s.handle(TreeEmpty{}) == Actions{Finish{130}});
  }
  SECTION("and once is enough") {
    CHECK(s.handle(StopRequested{SIGTERM}).empty());
  }
  SECTION("unless all is to be killed at once") {
    CHECK(s.handle(KillRequested{}) == Actions{KillAll{}});
    CHECK(s.handle(GraceExpired{}) == Actions{KillAll{}});
  }
}

TEST_CASE("being told to stop while ranks are stopped for a failure", "[supervisor]") {
  Supervisor s(2);
  s.start();
  s.handle(RankExited{0, kFailed});
  CHECK(s.handle(StopRequested{SIGTERM}).empty());
  s.handle(RankExited{1, kKilled});
  s.handle(TreeEmpty{});
  SECTION("ends with the signal when there was a restart left") {
    CHECK(s.handle(kAgain) == Actions{Finish{143}});
  }
  SECTION("and with the failure when there was none") {
    CHECK(s.handle(kNoMore) == Actions{Finish{7}});
  }
}

TEST_CASE("a signal that comes when all has ended well changes nothing", "[supervisor]") {
  Supervisor s(1);
  s.start();
  s.handle(RankExited{0, kOk});
  SECTION("while what was left is swept: the work is done, but we were told to stop") {
    CHECK(s.handle(StopRequested{SIGTERM}).empty());
    CHECK(s.handle(TreeEmpty{}) == Actions{Finish{143}});
  }
  SECTION("and after the end") {
    s.handle(TreeEmpty{});
    CHECK(s.handle(StopRequested{SIGTERM}).empty());
  }
}

// --- In a team of nodes

TEST_CASE("in a team nothing starts before the leader says so", "[supervisor]") {
  Supervisor s(2, true);
  CHECK(s.start().empty());
  CHECK_FALSE(s.active());
  CHECK(s.handle(RoundStarted{4}) == Actions{StartRanks{4}});
  CHECK(s.attempt() == 4);
  CHECK(s.active());
  SECTION("and what runs is not started twice") {
    CHECK(s.handle(RoundStarted{5}).empty());
    CHECK(s.attempt() == 4);
  }
}

TEST_CASE("in a team the end of our part is told, and the leader says what comes", "[supervisor]") {
  Supervisor s(1, true);
  s.handle(RoundStarted{0});
  s.handle(RankExited{0, GENERATE(ExitReport{}, ExitReport{.code = 7})});
  CHECK(s.handle(TreeEmpty{}) == Actions{AssessFailure{}});
  SECTION("another round") {
    CHECK(s.handle(RoundStarted{1}) == Actions{StartRanks{1}});
    CHECK(s.first_failed() == -1);
    CHECK_FALSE(s.was_stopped());
  }
  SECTION("the end of the job, with its status and not ours") {
    CHECK(s.handle(JobFinished{3}) == Actions{Finish{3}});
    CHECK(s.handle(RoundStarted{1}).empty());
    CHECK(s.handle(JobFinished{4}).empty());
    CHECK(s.handle(StopRequested{SIGTERM}).empty());
  }
}

TEST_CASE("a round that stops is no failure of ours", "[supervisor]") {
  Supervisor s(2, true);
  s.handle(RoundStarted{0});
  CHECK(s.handle(RoundStopRequested{SIGINT}) ==
        Actions{SignalRank{0, SIGINT}, SignalRank{1, SIGINT}, StartGrace{}});
  CHECK(s.was_stopped());
  CHECK(s.handle(RoundStopRequested{SIGTERM}).empty());
  s.handle(RankExited{0, kFailed});
  CHECK(s.first_failed() == -1);
  SECTION("and ranks that do not go are killed") {
    CHECK(s.handle(GraceExpired{}) == Actions{KillAll{}});
  }
  CHECK(s.handle(RankExited{1, kKilled}) == Actions{Sweep{}});
  CHECK(s.handle(RoundStarted{1}).empty());  // not before nothing is left of the last one
  CHECK(s.handle(TreeEmpty{}) == Actions{AssessFailure{}});
  CHECK(s.stop_signal() == 0);
}

TEST_CASE("a failure is ours although the round is stopped after it", "[supervisor]") {
  Supervisor s(2, true);
  s.handle(RoundStarted{0});
  s.handle(RankExited{1, kFailed});
  CHECK(s.handle(RoundStopRequested{SIGTERM}).empty());
  s.handle(RankExited{0, kKilled});
  CHECK(s.handle(TreeEmpty{}) == Actions{AssessFailure{}});
  CHECK(s.first_failed() == 1);
}

TEST_CASE("the end of the job stops ranks that still run", "[supervisor]") {
  Supervisor s(2, true);
  s.handle(RoundStarted{0});
  s.handle(RankExited{0, kOk});
  CHECK(s.handle(JobFinished{75}) == Actions{SignalRank{1, SIGTERM}, StartGrace{}});
  s.handle(RankExited{1, kKilled});
  CHECK(s.handle(TreeEmpty{}) == Actions{Finish{75}});
}

TEST_CASE("in a team a signal ends our part first, then the leader hears of it", "[supervisor]") {
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
    CHECK(s.handle(TreeEmpty{}) == Actions{AssessFailure{}});
  } else {
    CHECK(s.handle(StopRequested{SIGTERM}) == Actions{AssessFailure{}});
  }
  CHECK(s.stop_signal() == SIGTERM);
  CHECK(s.handle(RoundStarted{1}).empty());
  SECTION("and a second one does not wait for its answer") {
    CHECK(s.handle(StopRequested{SIGTERM}).empty());
    CHECK(s.handle(KillRequested{}) == Actions{Finish{143}});
  }
  SECTION("whose answer is the end") {
    CHECK(s.handle(JobFinished{143}) == Actions{Finish{143}});
  }
}
