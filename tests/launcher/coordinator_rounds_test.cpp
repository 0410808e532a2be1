// How rounds start: which nodes are waited for, how long, and in which order they are ranked.

#include "tests/launcher/coordinator_support.hpp"
#include "tests/support/cpu_time.hpp"

using namespace mgpu::launcher;
using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Job = mgpu::tests::CoordinatedJob;
using Nodes = std::vector<NodeId>;

TEST_CASE("a static job starts when all its nodes have joined", "[coordinator]") {
  Job job(Job::fixed(3));
  job.join(1, {.host = "c", .nproc = 1, .node_rank = 2});
  job.join(2, {.host = "a", .nproc = 4, .node_rank = 0, .leads = true, .rank0_port = 1234});
  CHECK(job.phase() == "gathering");
  CHECK(job.coordinator.missing() == "2 of 3 nodes joined (c, a); missing: node rank 1");
  job.join(3, {.host = "b", .nproc = 2, .node_rank = 1});
  CHECK(job.phase() == "running");
  CHECK(job.started_round() == Nodes{2, 3, 1});
  const auto told = job.sent<Begin>();
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
  // The store is emptied before any node receives Begin.
  CHECK(std::holds_alternative<StartRound>(job.actions.front()));
}

TEST_CASE("an elastic job waits for more nodes until the last call ends", "[coordinator]") {
  Job job(Job::elastic(2, 4));
  job.join(1, {.leads = true});
  job.tick(100s);
  job.join(2);
  CHECK(job.phase() == "gathering");
  CHECK_THAT(job.coordinator.missing(), Contains("last call for more"));
  CHECK(job.coordinator.next_deadline().value() <= job.now + 30s);
  job.tick(29s);
  CHECK(job.phase() == "gathering");

  SECTION("a new node does not move it") {
    job.join(3);
    job.tick(1s);
    CHECK(job.started_round() == Nodes{1, 2, 3});
  }
  SECTION("but only until the job is full") {
    job.join(3);
    job.join(4);
    CHECK(job.started_round() == Nodes{1, 2, 3, 4});
  }
  SECTION("it starts again when there are not enough nodes any more") {
    job.lose(2, job.now);
    job.tick(2s);
    job.join(3);
    job.tick(29s);
    CHECK(job.phase() == "gathering");
    job.tick(1s);
    CHECK(job.started_round() == Nodes{1, 3});
  }
}

TEST_CASE("the last call never exceeds the join timeout", "[coordinator]") {
  auto settings = Job::elastic(1, 2);
  settings.join_timeout = 10s;
  Job job(settings);
  job.tick(9s);
  job.join(1);
  job.tick(1s);
  CHECK(job.started_round() == Nodes{1});
}

TEST_CASE("nodes that do not join in time end with 75 and the list of missing nodes",
          "[coordinator]") {
  Job job(Job::fixed(3));
  job.join(1, {.host = "a", .node_rank = 0});
  job.join(2, {.host = "b", .node_rank = 2});
  job.tick(599s);
  CHECK(job.status() == -1);
  job.tick(1s);
  CHECK(job.status() == 75);
  CHECK(job.all<JobEnded>()[0].why ==
        "not enough nodes joined within 600 s: 2 of 3 nodes joined (a, b); missing: node rank 1");
  CHECK(job.recipients<End>() == Nodes{1, 2});
  CHECK(job.all<Dismiss>().size() == 2);
  CHECK(job.coordinator.over());

  SECTION("and later nodes are dismissed") {
    job.forget();
    job.join(3, {.node_rank = 1});
    CHECK(job.sent<Refusal>()[0].second.why == "the job has ended");
    CHECK(job.all<Dismiss>().size() == 1);
    CHECK(job.started_round().empty());
  }
}

TEST_CASE("waiting nodes receive what is missing, at most once a second", "[coordinator]") {
  Job job(Job::elastic(3, 3));
  job.join(1, {.host = "a"});
  job.tick();
  CHECK(job.sent<Notice>()[0].second.text == "1 of 3 nodes joined (a)");
  job.join(2, {.host = "b"});
  job.tick(500ms);
  CHECK(job.sent<Notice>().size() == 1);
  CHECK(job.coordinator.next_deadline().value() == job.now + 500ms);
  job.tick(500ms);
  CHECK(job.sent<Notice>().size() == 3);
  job.tick(100s);
  CHECK(job.sent<Notice>().size() == 3);  // nothing new
}

TEST_CASE("a new node below the maximum starts a new round of all nodes", "[coordinator]") {
  Job job(Job::elastic(1, 4));
  job.join(1, {.leads = true});
  job.tick(30s);
  job.forget();
  job.join(2);
  CHECK(job.phase() == "running");
  job.tick(30s);
  CHECK(job.phase() == "stopping");
  CHECK(job.recipients<Stop>() == Nodes{1});
  CHECK_FALSE(job.sent<Stop>()[0].second.failed);
  job.join(3);  // one more while the others stop
  CHECK(job.started_round().empty());
  job.end(1, Outcome::stopped);
  CHECK(job.started_round() == Nodes{1, 2, 3});
  CHECK(job.coordinator.counts().restarts == 0);
  CHECK(job.sent<Begin>()[0].second.round == 1);
  CHECK(job.sent<Begin>()[0].second.restarts == 0);
}

TEST_CASE("nodes that save before a stop do not wait for a rank that failed meanwhile",
          "[coordinator]") {
  Job job(Job::elastic(1, 3));
  job.join_all(3);
  REQUIRE(job.phase() == "running");
  job.failing(1, SIGTERM);
  job.forget();
  SECTION("because its node is lost") {
    job.lose(3, job.now);
    CHECK(job.recipients<Stop>() == Nodes{1, 2});
  }
  SECTION("on a node that is still there") {
    job.failing(3);
    CHECK(job.recipients<Stop>() == Nodes{1, 2});
  }
  CHECK(job.sent<Stop>()[0].second.failed);
  CHECK(job.phase() == "stopping");
}

TEST_CASE("five nodes that join a running job one second apart stop it once", "[coordinator]") {
  Job job(Job::elastic(1, 8));
  job.join(1, {.host = "a", .leads = true});
  job.tick(30s);
  REQUIRE(job.phase() == "running");
  job.forget();
  for (NodeId id = 2; id <= 6; ++id) {
    job.join(id);
    job.tick(1s);
  }
  CHECK(job.sent<Stop>().empty());
  CHECK(job.coordinator.view()[1].state == "waiting");
  CHECK_THAT(job.sent<Notice>().at(0).second.text, Contains("last call"));
  REQUIRE(job.all<PrintLine>().size() == 1);
  CHECK(job.all<PrintLine>()[0].line ==
        "host2 joins; the ranks go on for 30 s (last call for more nodes), then all nodes form a "
        "new round");

  SECTION("when the last call ends that the first of them began") {
    CHECK(job.coordinator.next_deadline() == job.now + 25s);
    job.tick(25s);
    CHECK(job.recipients<Stop>() == Nodes{1});
    CHECK(job.all<PrintLine>().back().line ==
          "host2, host3, host4, host5, host6 join; all nodes stop and form a new round");
    job.end(1, Outcome::stopped);
    CHECK(job.started_round() == Nodes{1, 2, 3, 4, 5, 6});
    CHECK(job.coordinator.counts().restarts == 0);
    job.forget();
    job.join(7);
    CHECK(job.sent<Stop>().empty());
  }
  SECTION("or at once when the job is full") {
    job.join(7);
    CHECK(job.sent<Stop>().empty());
    job.join(8);
    CHECK(job.recipients<Stop>() == Nodes{1});
  }
  SECTION("and not at all if they leave again") {
    for (NodeId id = 2; id <= 6; ++id) job.leave(id);
    job.tick(25s);
    CHECK(job.phase() == "running");
    job.join(9);
    job.tick(29s);
    CHECK(job.phase() == "running");
    job.tick(1s);
    CHECK(job.phase() == "stopping");
  }
  SECTION("and take part at once when the ranks stop for another reason") {
    job.lose(1, job.now, true);
    CHECK(job.started_round() == Nodes{2, 3, 4, 5, 6});
  }
  SECTION("and not at all if ranks have finished meanwhile") {
    job.join(7);
    job.forget();
    job.end(1, Outcome::done);
    CHECK(job.sent<Stop>().empty());
    CHECK(job.status() == 0);
  }
}

TEST_CASE("without a last call a new node stops a running job at once", "[coordinator]") {
  auto settings = Job::elastic(1, 3);
  settings.last_call = 0s;
  Job job(settings);
  job.join(1, {.leads = true});
  job.forget();
  job.join(2);
  CHECK(job.recipients<Stop>() == Nodes{1});
  CHECK(job.all<PrintLine>().back().line == "host2 joins; all nodes stop and form a new round");
}

TEST_CASE("ranks that finish during the last call for new nodes are not stopped", "[coordinator]") {
  Job job(Job::elastic(2, 4));
  job.join(1, {.leads = true});
  job.join(2);
  job.tick(30s);
  job.forget();
  job.join(3);
  job.end(2, Outcome::done);
  job.tick(30s);
  CHECK(job.sent<Stop>().empty());
  job.end(1, Outcome::done);
  CHECK(job.status() == 0);
}

TEST_CASE("a new node does not disturb a job in which some nodes have finished", "[coordinator]") {
  Job job(Job::elastic(2, 3));
  job.join(1, {.leads = true});
  job.join(2);
  job.tick(30s);
  job.end(2, Outcome::done);
  job.forget();
  SECTION("and wait for the others") {
    job.join(3);
    CHECK(job.sent<Stop>().empty());
  }
  SECTION("and are disconnected") {
    job.lose(2, job.now, true);
    job.join(3);
    CHECK(job.sent<Stop>().empty());
  }
  SECTION("and have left") {
    job.leave(2);
    job.join(3);
    CHECK(job.sent<Stop>().empty());
  }
  job.end(1, Outcome::done);
  CHECK(job.status() == 0);
}

TEST_CASE("a full job keeps a late node as a spare", "[coordinator]") {
  Job job(Job::elastic(2, 2));
  job.join(1, {.leads = true});
  job.join(2);
  job.forget();
  job.join(3);
  CHECK(job.phase() == "running");
  job.tick(1s);
  REQUIRE(job.recipients<Notice>() == Nodes{3});
  CHECK_THAT(job.sent<Notice>()[0].second.text, Contains("spare"));
  CHECK(job.coordinator.view()[2].state == "spare");

  SECTION("which replaces a lost node") {
    job.lose(2, job.now, true);
    CHECK(job.started_round().empty());
    job.end(1, Outcome::stopped);
    CHECK(job.started_round() == Nodes{1, 3});
  }
  SECTION("which may leave without effect") {
    job.leave(3, 15);
    CHECK(job.phase() == "running");
    CHECK(job.status() == -1);
  }
  SECTION("whose loss has no effect") {
    job.lose(3, job.now);
    CHECK(job.phase() == "running");
    CHECK(job.sent<Stop>().empty());
  }
}

TEST_CASE("a node rank out of range is rejected", "[coordinator]") {
  Job job(Job::fixed(2));
  job.join(1, {.node_rank = 2});
  REQUIRE(job.recipients<Refusal>() == Nodes{1});
  CHECK(job.sent<Refusal>()[0].second.why ==
        "node rank 2 is out of range: --nnodes is 2, so it must be 0 to 1");
  CHECK(job.all<Dismiss>().size() == 1);
  CHECK(job.coordinator.view().empty());
}

TEST_CASE("an invalid join is rejected and changes nothing", "[coordinator]") {
  Job job(Job::elastic(1, 2));
  constexpr int kMost = 2'147'483'647;
  const Join bad =
      GENERATE(Join{.nproc = 0}, Join{.nproc = -1}, Join{.nproc = kMost}, Join{.rank0_port = 65536},
               Join{.rank0_port = -1}, Join{.rounds = kMost}, Join{.rounds = -1},
               Join{.restarts = kMost}, Join{.oom_count = kMost}, Join{.nodes = kMost});
  job.join(1, bad);
  CHECK(job.recipients<Refusal>() == Nodes{1});
  CHECK(job.all<Dismiss>().size() == 1);
  CHECK(job.coordinator.view().empty());
  CHECK(job.coordinator.counts().rounds == 0);
  CHECK(job.coordinator.counts().restarts == 0);
}

TEST_CASE("control characters in a host name do not reach the terminal", "[coordinator]") {
  Job job(Job::elastic(1, 2));
  job.join(1, {.host = "a\x1b[2J\n" + std::string(10'000, 'x')});
  const std::string host = job.coordinator.view()[0].host;
  CHECK_THAT(host, Catch::Matchers::StartsWith("a?[2J?x"));
  CHECK(host.size() < 300);
}

TEST_CASE("the second of two nodes with one node rank waits for the keep-alive", "[coordinator]") {
  Job job(Job::fixed(2));
  job.join(1, {.host = "a", .node_rank = 0, .leads = true});
  job.join(2, {.host = "b", .node_rank = 1});
  job.forget();
  job.join(3, {.host = "again", .node_rank = 1});
  CHECK(job.coordinator.next_deadline().value() <= job.now + 5s);

  SECTION("and is rejected when the first is alive") {
    job.tick(4900ms);
    CHECK(job.sent<Refusal>().empty());
    job.tick(100ms);
    REQUIRE(job.recipients<Refusal>() == Nodes{3});
    CHECK_THAT(job.sent<Refusal>()[0].second.why, Contains("node rank 1 is taken by b"));
    CHECK(job.all<Dismiss>().size() == 1);
    CHECK(job.phase() == "running");
  }
  SECTION("and replaces the first when that is lost") {
    job.tick(3s);
    job.lose(2, job.now - 3s, true);
    job.end(1, Outcome::stopped);
    CHECK(job.phase() == "gathering");
    job.tick(50ms);
    CHECK(job.started_round() == Nodes{1, 3});
    CHECK(job.sent<Refusal>().empty());
  }
  SECTION("and of several that wait the first one replaces it") {
    job.join(4, {.host = "third", .node_rank = 1});
    job.lose(2, job.now, true);
    job.end(1, Outcome::stopped);
    job.tick();
    CHECK(job.started_round() == Nodes{1, 3});
    job.tick(5s);
    CHECK(job.recipients<Refusal>() == Nodes{4});
  }
  SECTION("and does not keep the rank when it leaves again") {
    job.lose(3, job.now);
    job.lose(2, job.now, true);
    job.end(1, Outcome::stopped);
    job.join(5, {.node_rank = 1});
    CHECK(job.started_round() == Nodes{1, 5});
  }
}

TEST_CASE("a node that was cut off and returns is in the next round", "[coordinator]") {
  Job job(Job::elastic(2, 2));
  job.join(1, {.leads = true});
  job.join(2);
  job.lose(2, job.now - 5s);
  job.end(1, Outcome::stopped);
  CHECK(job.phase() == "stopping");  // its ranks may still run
  job.forget();
  job.join(7, {.host = "host2", .nodes = 2, .rounds = 1});
  CHECK(job.started_round().empty());
  job.tick(31s);
  CHECK(job.started_round() == Nodes{1, 7});
}

TEST_CASE("a new leader continues the counts of the lost one", "[coordinator]") {
  SECTION("from the saved state") {
    Job job(Job::elastic(1, 1), {.rounds = 7, .restarts = 2, .oom_count = 1});
    job.join(1);
    const Begin begin = job.sent<Begin>().at(0).second;
    CHECK(begin.round == 7);
    CHECK(begin.restarts == 2);
    CHECK(begin.oom_count == 1);
  }
  SECTION("or from the counts that the nodes report") {
    Job job(Job::elastic(2, 2));
    job.join(1, {.leads = true});
    job.join(2, {.nodes = 2, .rounds = 4, .restarts = 3, .oom_count = 2});
    job.tick(35s);
    const Begin begin = job.sent<Begin>().at(0).second;
    CHECK(begin.round == 4);
    CHECK(begin.restarts == 3);
    CHECK(begin.oom_count == 2);
  }
}

TEST_CASE("a new leader waits for the nodes that may still run the round of the lost one",
          "[coordinator]") {
  auto settings = Job::elastic(2, 3);
  settings.nodes_before = 3;
  Job job(settings, {.rounds = 1});
  job.join(1, {.leads = true, .nodes = 3, .rounds = 1});
  job.join(2, {.nodes = 3, .rounds = 1});
  CHECK(job.phase() == "gathering");

  SECTION("until they have joined again") {
    job.tick(1s);
    job.join(3, {.nodes = 3, .rounds = 1});
    CHECK(job.started_round() == Nodes{1, 2, 3});
  }
  SECTION("or until their ranks must have ended") {
    CHECK(job.coordinator.next_deadline());
    job.tick(34900ms);
    CHECK(job.started_round().empty());
    job.tick(100ms);
    CHECK(job.started_round() == Nodes{1, 2});
  }
  SECTION("but not for those that were not in it") {
    job.join(9);
    CHECK(job.started_round().empty());
  }
}

TEST_CASE("a new leader with enough nodes does not time out before they may start",
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
  CHECK(job.started_round() == Nodes{1, 2});
}

TEST_CASE("the next deadline is never in the past", "[coordinator]") {
  // The event loop sleeps until the next deadline: one in the past would make it spin.
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
    if (i == 51 && !lost) job.end(2, Outcome::stopped);
    if (i == 70) job.join(4, {.node_rank = 1});
    job.tick();
  }
}

TEST_CASE("ten thousand nodes join in well under a second", "[coordinator]") {
  constexpr int kNodes = 10'000;
  const CpuTime cpu;
  SECTION("at the start") {
    Job job(Job::elastic(kNodes, kNodes));
    for (int i = 0; i < kNodes; ++i) job.join(static_cast<NodeId>(i + 1));
    CHECK(job.started_round().size() == kNodes);
    for (int i = 0; i < kNodes; ++i) job.end(static_cast<NodeId>(i + 1), Outcome::done);
    CHECK(job.status() == 0);
  }
  SECTION("and again at a new leader") {
    auto settings = Job::elastic(2, kNodes);
    settings.nodes_before = kNodes;
    Job job(settings, {.rounds = 1});
    for (int i = 0; i < kNodes; ++i)
      job.join(static_cast<NodeId>(i + 1), {.nodes = kNodes, .rounds = 1});
    CHECK(job.started_round().size() == kNodes);
  }
  CHECK(cpu.seconds() < 1);
}
