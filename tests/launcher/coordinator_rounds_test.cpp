// How rounds begin: who is waited for, until when, and who stands where.
#include <ctime>

#include "tests/launcher/coordinator_support.hpp"

using namespace mgpu::launcher;
using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Job = mgpu::tests::CoordinatedJob;
using Nodes = std::vector<NodeId>;

TEST_CASE("a static job begins when all its nodes are here", "[coordinator]") {
  Job job(Job::fixed(3));
  job.join(1, {.host = "c", .nproc = 1, .node_rank = 2});
  job.join(2, {.host = "a", .nproc = 4, .node_rank = 0, .leads = true, .rank0_port = 1234});
  CHECK(job.phase() == "gathering");
  CHECK(job.coordinator.missing() == "2 of 3 nodes joined (c, a); missing: node rank 1");
  job.join(3, {.host = "b", .nproc = 2, .node_rank = 1});
  CHECK(job.phase() == "running");
  CHECK(job.opened() == Nodes{2, 3, 1});
  const auto told = job.told<Begin>();
  REQUIRE(told.size() == 3);
  const int base_ranks[] = {0, 4, 6};
  for (int i = 0; i < 3; ++i) {
    const Begin& begin = told[static_cast<std::size_t>(i)].second;
    CHECK(begin.round == 0);
    CHECK(begin.node_rank == i);
    CHECK(begin.nodes == 3);
    CHECK(begin.base_rank == base_ranks[i]);
    CHECK(begin.world_size == 7);
    CHECK(begin.master_port == 1234);
  }
  // The store is emptied before anybody is told to begin.
  CHECK(std::holds_alternative<StartRound>(job.actions.front()));
}

TEST_CASE("a job that may grow waits for more until the last call", "[coordinator]") {
  Job job(Job::elastic(2, 4));
  job.join(1, {.leads = true});
  job.tick(100s);
  job.join(2);
  CHECK(job.phase() == "gathering");
  CHECK_THAT(job.coordinator.missing(), Contains("last call for more"));
  CHECK(job.coordinator.next_deadline().value() <= job.now + 30s);
  job.tick(29s);
  CHECK(job.phase() == "gathering");

  SECTION("which a newcomer does not move") {
    job.join(3);
    job.tick(1s);
    CHECK(job.opened() == Nodes{1, 2, 3});
  }
  SECTION("but no longer than until it is full") {
    job.join(3);
    job.join(4);
    CHECK(job.opened() == Nodes{1, 2, 3, 4});
  }
  SECTION("which begins anew when there are not enough any more") {
    job.lose(2, job.now);
    job.tick(2s);
    job.join(3);
    job.tick(29s);
    CHECK(job.phase() == "gathering");
    job.tick(1s);
    CHECK(job.opened() == Nodes{1, 3});
  }
}

TEST_CASE("the last call never goes beyond the time to join", "[coordinator]") {
  auto settings = Job::elastic(1, 2);
  settings.join_timeout = 10s;
  Job job(settings);
  job.tick(9s);
  job.join(1);
  job.tick(1s);
  CHECK(job.opened() == Nodes{1});
}

TEST_CASE("nodes that do not meet in time end with 75 and what was missing", "[coordinator]") {
  Job job(Job::fixed(3));
  job.join(1, {.host = "a", .node_rank = 0});
  job.join(2, {.host = "b", .node_rank = 2});
  job.tick(599s);
  CHECK(job.status() == -1);
  job.tick(1s);
  CHECK(job.status() == 75);
  CHECK(job.all<JobEnded>()[0].why ==
        "not enough nodes joined within 600 s: 2 of 3 nodes joined (a, b); missing: node rank 1");
  CHECK(job.who_was_told<End>() == Nodes{1, 2});
  CHECK(job.all<Dismiss>().size() == 2);
  CHECK(job.coordinator.over());

  SECTION("and who comes then is sent away") {
    job.forget();
    job.join(3, {.node_rank = 1});
    CHECK(job.told<Refusal>()[0].second.why == "the job has ended");
    CHECK(job.all<Dismiss>().size() == 1);
    CHECK(job.opened().empty());
  }
}

TEST_CASE("those who wait are told what for, once a second at most", "[coordinator]") {
  Job job(Job::elastic(3, 3));
  job.join(1, {.host = "a"});
  job.tick();
  CHECK(job.told<Notice>()[0].second.text == "1 of 3 nodes joined (a)");
  job.join(2, {.host = "b"});
  job.tick(500ms);
  CHECK(job.told<Notice>().size() == 1);
  CHECK(job.coordinator.next_deadline().value() == job.now + 500ms);
  job.tick(500ms);
  CHECK(job.told<Notice>().size() == 3);
  job.tick(100s);
  CHECK(job.told<Notice>().size() == 3);  // nothing is new
}

TEST_CASE("a newcomer below the most makes everybody start anew together", "[coordinator]") {
  Job job(Job::elastic(1, 3));
  job.join(1, {.leads = true});
  job.tick(30s);
  job.forget();
  job.join(2);
  CHECK(job.phase() == "stopping");
  CHECK(job.who_was_told<Stop>() == Nodes{1});
  job.join(3);  // one more while the others stop
  CHECK(job.opened().empty());
  job.end(1, "stopped");
  CHECK(job.opened() == Nodes{1, 2, 3});
  CHECK(job.coordinator.counts().restarts == 0);
  CHECK(job.told<Begin>()[0].second.round == 1);
  CHECK(job.told<Begin>()[0].second.restarts == 0);
}

TEST_CASE("a newcomer disturbs nobody when some have done their work", "[coordinator]") {
  Job job(Job::elastic(2, 3));
  job.join(1, {.leads = true});
  job.join(2);
  job.tick(30s);
  job.end(2, "done");
  job.forget();
  SECTION("and wait for the others") {
    job.join(3);
    CHECK(job.told<Stop>().empty());
  }
  SECTION("and have gone already") {
    job.lose(2, job.now, true);
    job.join(3);
    CHECK(job.told<Stop>().empty());
  }
  SECTION("and have left already") {
    job.leave(2);
    job.join(3);
    CHECK(job.told<Stop>().empty());
  }
  job.end(1, "done");
  CHECK(job.status() == 0);
}

TEST_CASE("a full job keeps who comes late as a spare", "[coordinator]") {
  Job job(Job::elastic(2, 2));
  job.join(1, {.leads = true});
  job.join(2);
  job.forget();
  job.join(3);
  CHECK(job.phase() == "running");
  job.tick(1s);
  REQUIRE(job.who_was_told<Notice>() == Nodes{3});
  CHECK_THAT(job.told<Notice>()[0].second.text, Contains("spare"));
  CHECK(job.coordinator.view()[2].state == "spare");

  SECTION("that takes the place of a node that is lost") {
    job.lose(2, job.now, true);
    CHECK(job.opened().empty());
    job.end(1, "stopped");
    CHECK(job.opened() == Nodes{1, 3});
  }
  SECTION("that may leave unnoticed") {
    job.leave(3, 15);
    CHECK(job.phase() == "running");
    CHECK(job.status() == -1);
  }
  SECTION("whose loss means nothing") {
    job.lose(3, job.now);
    CHECK(job.phase() == "running");
    CHECK(job.told<Stop>().empty());
  }
}

TEST_CASE("a node rank that does not fit is refused", "[coordinator]") {
  Job job(Job::fixed(2));
  job.join(1, {.node_rank = 2});
  REQUIRE(job.who_was_told<Refusal>() == Nodes{1});
  CHECK(job.told<Refusal>()[0].second.why ==
        "node rank 2 is out of range: --nnodes is 2, so it must be 0 to 1");
  CHECK(job.all<Dismiss>().size() == 1);
  CHECK(job.coordinator.view().empty());
}

TEST_CASE("what a join cannot be is refused and changes nothing", "[coordinator]") {
  Job job(Job::elastic(1, 2));
  constexpr int kMost = 2'147'483'647;
  const Join bad =
      GENERATE(Join{.nproc = 0}, Join{.nproc = -1}, Join{.nproc = kMost}, Join{.rank0_port = 65536},
               Join{.rank0_port = -1}, Join{.rounds = kMost}, Join{.rounds = -1},
               Join{.restarts = kMost}, Join{.oom_count = kMost}, Join{.nodes = kMost});
  job.join(1, bad);
  CHECK(job.who_was_told<Refusal>() == Nodes{1});
  CHECK(job.all<Dismiss>().size() == 1);
  CHECK(job.coordinator.view().empty());
  CHECK(job.coordinator.counts().rounds == 0);
  CHECK(job.coordinator.counts().restarts == 0);
}

TEST_CASE("a host's name cannot write on our terminal", "[coordinator]") {
  Job job(Job::elastic(1, 2));
  job.join(1, {.host = "a\x1b[2J\n" + std::string(10'000, 'x')});
  const std::string host = job.coordinator.view()[0].host;
  CHECK_THAT(host, Catch::Matchers::StartsWith("a?[2J?x"));
  CHECK(host.size() < 300);
}

TEST_CASE("of two nodes that ask for one node rank the second waits for the keep-alive",
          "[coordinator]") {
  Job job(Job::fixed(2));
  job.join(1, {.host = "a", .node_rank = 0, .leads = true});
  job.join(2, {.host = "b", .node_rank = 1});
  job.forget();
  job.join(3, {.host = "again", .node_rank = 1});
  CHECK(job.coordinator.next_deadline().value() <= job.now + 5s);

  SECTION("and is refused when the first lives") {
    job.tick(4900ms);
    CHECK(job.told<Refusal>().empty());
    job.tick(100ms);
    REQUIRE(job.who_was_told<Refusal>() == Nodes{3});
    CHECK_THAT(job.told<Refusal>()[0].second.why, Contains("node rank 1 is taken by b"));
    CHECK(job.all<Dismiss>().size() == 1);
    CHECK(job.phase() == "running");
  }
  SECTION("and has its place when the first is lost") {
    job.tick(3s);
    job.lose(2, job.now - 3s, true);
    job.end(1, "stopped");
    CHECK(job.phase() == "gathering");
    job.tick(50ms);
    CHECK(job.opened() == Nodes{1, 3});
    CHECK(job.told<Refusal>().empty());
  }
  SECTION("and of those who wait the first to come has it") {
    job.join(4, {.host = "third", .node_rank = 1});
    job.lose(2, job.now, true);
    job.end(1, "stopped");
    job.tick();
    CHECK(job.opened() == Nodes{1, 3});
    job.tick(5s);
    CHECK(job.who_was_told<Refusal>() == Nodes{4});
  }
  SECTION("and does not keep a place when it goes again") {
    job.lose(3, job.now);
    job.lose(2, job.now, true);
    job.end(1, "stopped");
    job.join(5, {.node_rank = 1});
    CHECK(job.opened() == Nodes{1, 5});
  }
}

TEST_CASE("a node that was cut off and comes back is in the next round", "[coordinator]") {
  Job job(Job::elastic(2, 2));
  job.join(1, {.leads = true});
  job.join(2);
  job.lose(2, job.now - 5s);
  job.end(1, "stopped");
  CHECK(job.phase() == "stopping");  // its ranks may still run
  job.forget();
  job.join(7, {.host = "host2", .nodes = 2, .rounds = 1});
  CHECK(job.opened().empty());
  job.tick(31s);
  CHECK(job.opened() == Nodes{1, 7});
}

TEST_CASE("a new leader goes on counting where the lost one was", "[coordinator]") {
  SECTION("as it was told") {
    Job job(Job::elastic(1, 1), {.rounds = 7, .restarts = 2, .oom_count = 1});
    job.join(1);
    const Begin begin = job.told<Begin>().at(0).second;
    CHECK(begin.round == 7);
    CHECK(begin.restarts == 2);
    CHECK(begin.oom_count == 1);
  }
  SECTION("or as the nodes remember") {
    Job job(Job::elastic(2, 2));
    job.join(1, {.leads = true});
    job.join(2, {.nodes = 2, .rounds = 4, .restarts = 3, .oom_count = 2});
    job.tick(35s);
    const Begin begin = job.told<Begin>().at(0).second;
    CHECK(begin.round == 4);
    CHECK(begin.restarts == 3);
    CHECK(begin.oom_count == 2);
  }
}

TEST_CASE("a new leader waits for the nodes that may still run the lost one's round",
          "[coordinator]") {
  auto settings = Job::elastic(2, 3);
  settings.nodes_before = 3;
  Job job(settings, {.rounds = 1});
  job.join(1, {.leads = true, .nodes = 3, .rounds = 1});
  job.join(2, {.nodes = 3, .rounds = 1});
  CHECK(job.phase() == "gathering");

  SECTION("until they are back") {
    job.tick(1s);
    job.join(3, {.nodes = 3, .rounds = 1});
    CHECK(job.opened() == Nodes{1, 2, 3});
  }
  SECTION("or cannot run it any more") {
    CHECK(job.coordinator.next_deadline());
    job.tick(34900ms);
    CHECK(job.opened().empty());
    job.tick(100ms);
    CHECK(job.opened() == Nodes{1, 2});
  }
  SECTION("but not for those that were not in it") {
    job.join(9);
    CHECK(job.opened().empty());
  }
}

TEST_CASE("a new leader with enough nodes does not give up before they may begin",
          "[coordinator]") {
  auto settings = Job::elastic(2, 3);
  settings.nodes_before = 3;
  settings.join_timeout = 10s;
  Job job(settings, {.rounds = 1});
  job.join(1, {.leads = true, .nodes = 3});
  job.join(2, {.nodes = 3});
  job.tick(20s);
  CHECK(job.status() == -1);
  job.tick(15s);
  CHECK(job.opened() == Nodes{1, 2});
}

TEST_CASE("a deadline that has passed is not a deadline", "[coordinator]") {
  // The loop sleeps until the next one: one in the past would make it spin.
  const bool lost = GENERATE(false, true);
  auto settings = Job::elastic(2, 4);
  settings.max_nodes = 3;
  settings.limits = {.max_restarts = 10, .retry_delay = 3s};
  Job job(settings);
  job.join(1, {.leads = true});
  job.join(2, {.node_rank = 1});
  for (int i = 0; i < 400; ++i) {
    const auto deadline = job.coordinator.next_deadline();
    if (deadline) {
      REQUIRE(*deadline > job.now);
      job.now = *deadline;
    } else {
      job.now += 1s;
    }
    job.tick();
    if (i == 50) job.join(3, {.node_rank = 1});
    if (i == 51) job.fail(1, job.now);
    if (i == 51 && lost) job.lose(2, job.now - 6s);
    if (i == 51 && !lost) job.end(2, "stopped");
    if (i == 70) job.join(4, {.node_rank = 1});
    job.tick();
  }
}

TEST_CASE("ten thousand nodes join in well under a second", "[coordinator]") {
  constexpr int kNodes = 10'000;
  const std::clock_t before = std::clock();  // of our own work: the machine may be busy
  SECTION("at the beginning") {
    Job job(Job::elastic(kNodes, kNodes));
    for (int i = 0; i < kNodes; ++i) job.join(static_cast<NodeId>(i + 1));
    CHECK(job.opened().size() == kNodes);
    for (int i = 0; i < kNodes; ++i) job.end(static_cast<NodeId>(i + 1), "done");
    CHECK(job.status() == 0);
  }
  SECTION("and again, at a leader that took over") {
    auto settings = Job::elastic(2, kNodes);
    settings.nodes_before = kNodes;
    Job job(settings, {.rounds = 1});
    for (int i = 0; i < kNodes; ++i)
      job.join(static_cast<NodeId>(i + 1), {.nodes = kNodes, .rounds = 1});
    CHECK(job.opened().size() == kNodes);
  }
  CHECK(std::clock() - before < CLOCKS_PER_SEC);
}
