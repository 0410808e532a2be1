// Messages with impossible values, or from nodes that may not send them.
#include <csignal>
#include <limits>

#include "tests/launcher/coordinator_support.hpp"

using namespace mgpu::launcher;
using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using Job = mgpu::tests::CoordinatedJob;
using Nodes = std::vector<NodeId>;

TEST_CASE("impossible times do no harm", "[coordinator]") {
  Job job(Job::elastic(1, 3));
  job.join_all(3);
  const std::int64_t when =
      GENERATE(std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min());
  job.fail(1, Job::Time(when), 1, "no such cause", Job::Time(when));
  job.lose(2, job.now, true);
  job.end(3, Outcome::stopped);
  CHECK(job.all<RoundEnded>().size() == 1);
}

TEST_CASE("a join request with an impossible grace period is rejected", "[coordinator]") {
  Job job(Job::fixed(1));
  const std::int64_t time = GENERATE(-1, std::numeric_limits<std::int64_t>::max());
  job.join(1, GENERATE_COPY(Join{.grace = time}, Join{.lease_and_grace = time}));
  CHECK(job.recipients<Refusal>() == Nodes{1});
}

TEST_CASE("messages about another round, or from unknown nodes, change nothing", "[coordinator]") {
  Job job(Job::elastic(2, 2));
  job.join_all(2);
  job.join(3);
  job.forget();
  job.note(job.coordinator.failing(1, {.round = 7}, job.now));
  job.note(job.coordinator.failing(1, {.round = -1, .signo = 15}, job.now));
  job.note(job.coordinator.ended(1, {.round = 1, .outcome = Outcome::failed}, job.now));
  job.failing(99, SIGTERM);
  job.end(99, Outcome::failed);
  job.end(3, Outcome::failed);  // a spare has no ranks
  job.failing(3, SIGTERM);      // so none can fail
  job.leave(99, SIGTERM);
  job.lose(99, job.now);
  CHECK(job.actions.empty());
  CHECK(job.phase() == "running");

  SECTION("nor does a repeated message") {
    job.end(1, Outcome::done);
    job.end(1, Outcome::failed);
    job.end(2, Outcome::done);
    CHECK(job.status() == 0);
  }
}

TEST_CASE("an invalid signal number does not produce an invalid status", "[coordinator]") {
  Job job(Job::fixed(2));
  job.join_all(2);
  const int signo = GENERATE(-1, 65, 1'000'000, std::numeric_limits<int>::max());
  job.failing(2, signo);
  job.leave(2, signo);
  job.end(1, Outcome::stopped);
  for (const auto& over : job.all<JobEnded>()) {
    CHECK(over.status > 0);
    CHECK(over.status < 256);
  }
  for (const auto& [node, stop] : job.sent<Stop>()) CHECK(stop.signo == SIGTERM);
}
