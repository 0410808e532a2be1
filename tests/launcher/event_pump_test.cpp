#include "launcher/event_loop/event_pump.hpp"

#include <csignal>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::string_literals;

namespace {

// Records the actions, of which one kind throws, and the reasons of those that failed.
struct Recorder {
  explicit Recorder(std::function<void(const Action&)> throw_at)
      : pump(supervisor, {.carry_out =
                              [this, throw_at](const Action& action) {
                                actions.push_back(action);
                                throw_at(action);
                              },
                          .failed =
                              [this](const Action&, const std::exception& problem) {
                                problems.emplace_back(problem.what());
                                pump.feed(JobFinished{1});
                              },
                          .settled = [this] { ++settled; }}) {}

  std::vector<Action> take() { return std::exchange(actions, {}); }

  Supervisor supervisor{2};
  EventPump pump;
  std::vector<Action> actions;
  std::vector<std::string> problems;
  int settled = 0;
};

constexpr ExitReport kFailed{.code = 7};

}  // namespace

TEST_CASE("an action that throws does not keep the others from being carried out", "[event_pump]") {
  const bool described = GENERATE(true, false);
  Recorder job([described](const Action& action) {
    if (action != Action(SignalRank{1, SIGTERM})) return;
    if (described) throw std::runtime_error("no such process");
    throw 5;  // not a std::exception
  });
  job.pump.start();
  REQUIRE(job.take() == std::vector<Action>{StartRanks{0}});
  job.pump.feed(StopRequested{SIGINT});
  job.take();
  job.pump.feed(StopRequested{SIGTERM});
  CHECK(job.take() == std::vector<Action>{SignalRank{0, SIGTERM}, SignalRank{1, SIGTERM}});
  REQUIRE(job.problems.size() == 1);
  CHECK(job.problems[0] ==
        (described ? "no such process"s : "an exception without a description"s));

  SECTION("and the job ends with the status that the failure has set") {
    job.pump.feed(RankExited{0, {}});
    job.pump.feed(RankExited{1, {}});
    CHECK(job.take() == std::vector<Action>{Sweep{}});
    job.pump.feed(TreeEmpty{});
    CHECK(job.take() == std::vector<Action>{Finish{1}});
    CHECK(job.supervisor.done());
  }
}

TEST_CASE("an assessment that throws ends the job", "[event_pump]") {
  Recorder job([](const Action& action) {
    if (std::holds_alternative<AssessFailure>(action)) throw std::bad_alloc();
  });
  job.pump.start();
  job.pump.feed(RankExited{0, kFailed});
  job.pump.feed(RankExited{1, {}});
  job.take();
  job.pump.feed(TreeEmpty{});
  CHECK(job.take() == std::vector<Action>{AssessFailure{}, Finish{1}});
  CHECK(job.supervisor.first_status() == 7);
}

TEST_CASE("events of an action are handled after all actions of the event before", "[event_pump]") {
  Recorder* running = nullptr;
  Recorder job([&running](const Action& action) {
    if (std::holds_alternative<StartRanks>(action) && running) {
      running->pump.feed(RankExited{0, kFailed});
      running->pump.feed(RankExited{1, {}});
    }
  });
  running = &job;
  job.pump.start();
  CHECK(job.take() == std::vector<Action>{StartRanks{0}, AbortRank{1}, StartGrace{true}, Sweep{}});
  CHECK(job.settled == 1);
}

TEST_CASE("an action that is resumed holds back events like any other, and may fail",
          "[event_pump]") {
  Recorder job([](const Action&) {});
  job.pump.start();
  job.take();
  job.pump.resume(StartRanks{0}, [&job] {
    job.pump.feed(RankExited{0, kFailed});
    CHECK(job.actions.empty());
    throw std::runtime_error("no more descriptors");
  });
  CHECK(job.problems == std::vector<std::string>{"no more descriptors"});
  CHECK(job.take() == std::vector<Action>{AbortRank{1}, StartGrace{true}});
}

TEST_CASE("the pump goes on after a failure that could not be handled", "[event_pump]") {
  Supervisor supervisor(1);
  std::vector<Action> actions;
  EventPump pump(supervisor, {.carry_out =
                                  [&actions](const Action& action) {
                                    actions.push_back(action);
                                    if (std::holds_alternative<StartRanks>(action))
                                      throw std::runtime_error("first");
                                  },
                              .failed = [](const Action&, const std::exception&) { throw 1; },
                              .settled = [] {}});
  CHECK_THROWS(pump.start());
  actions.clear();
  pump.feed(RankExited{0, kFailed});
  CHECK(actions == std::vector<Action>{StartGrace{}, Sweep{}});
}
