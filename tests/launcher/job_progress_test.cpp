#include "launcher/nodes/job_progress.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/nodes/progress_json.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;

namespace {

RankProgress rank_at(int rank, std::int64_t step, double busy_ms) {
  return {rank, step, kTrainingPhase, 200.0, busy_ms};
}

// Each of three nodes reports its two ranks; rank 3, on node 2, needs `slow_ms`.
std::vector<Straggler> reports(JobProgress& progress, std::int64_t step, double slow_ms) {
  std::vector<Straggler> found;
  for (const NodeId node : std::vector<NodeId>{1, 2, 3}) {
    const int first = static_cast<int>(node - 1) * 2;
    for (const auto& straggler :
         progress.record(node, {rank_at(first, step, 100 + double(first)),
                                rank_at(first + 1, step, first == 2 ? slow_ms : 100)}))
      found.push_back(straggler);
  }
  return found;
}

}  // namespace

TEST_CASE("a straggler is found among the ranks of all nodes, once", "[stragglers]") {
  JobProgress progress;
  std::vector<Straggler> found;
  for (int step = 1; step <= 20; ++step)
    for (const auto& straggler : reports(progress, step, 150)) found.push_back(straggler);
  REQUIRE(found.size() == 1);
  CHECK(found.front() == Straggler{3, 150, 100});
  const auto slow = progress.of(2);
  REQUIRE(slow.size() == 2);
  CHECK(slow[1].straggler);
  CHECK(slow[1].skew == 1.5);
  CHECK_FALSE(slow[0].straggler);

  SECTION("a rank that is as fast as the others again is no straggler any more") {
    CHECK(reports(progress, 21, 100).empty());
    reports(progress, 22, 100);
    CHECK_FALSE(progress.of(2)[1].straggler);
  }
}

TEST_CASE("a rank that is slow for a few reports only is no straggler", "[stragglers]") {
  JobProgress progress;
  for (int step = 1; step <= 40; ++step)
    CHECK(reports(progress, step, step % 5 == 0 ? 100 : 150).empty());
}

TEST_CASE("of two nodes with one rank each the slower one is a straggler", "[stragglers]") {
  JobProgress progress;
  std::vector<Straggler> found;
  for (int step = 1; step <= 10; ++step) {
    CHECK(progress.record(1, {rank_at(0, step, 100 + step)}).empty());
    for (const auto& slow : progress.record(2, {rank_at(1, step, 200)})) found.push_back(slow);
  }
  REQUIRE(found.size() == 1);
  CHECK(found.front().rank == 1);
  CHECK(progress.of(1).front().skew < 0.6);
}

TEST_CASE("the report of a node replaces the one before", "[stragglers]") {
  JobProgress progress;
  progress.record(1, {rank_at(0, 5, 100), rank_at(1, 5, 100)});
  progress.record(1, {rank_at(1, 6, 100)});
  REQUIRE(progress.of(1).size() == 1);
  CHECK(progress.of(1).front().rank == 1);
  CHECK(progress.of(1).front().step == 6);
  progress.end(1);
  CHECK(progress.of(1).empty());
  CHECK(progress.of(9).empty());
}

TEST_CASE("ranks that report only steps have no skew", "[stragglers]") {
  JobProgress progress;
  for (int step = 1; step <= 20; ++step)
    for (const NodeId node : std::vector<NodeId>{1, 2})
      CHECK(progress.record(node, {{static_cast<int>(node), step, kTrainingPhase}}).empty());
  CHECK_FALSE(progress.of(1).front().skew);
}

TEST_CASE("progress reaches the leader unchanged, but for what it compares itself",
          "[stragglers]") {
  const std::vector<RankProgress> sent = {{4, 120, "training", 201.5, 150.25, 1.5, true},
                                          {5, -1, "loading"}};
  const auto read = progress_from_json(progress_to_json(sent).dump());
  CHECK(read == std::vector<RankProgress>{{4, 120, "training", 201.5, 150.25}, {5, -1, "loading"}});
  CHECK(progress_to_json(sent).at(0).at("straggler").get<bool>());
}

TEST_CASE("invalid progress is left out", "[stragglers]") {
  for (const char* text : {"", "[", "{}", "3", "[3]", "[{}]", R"([{"rank": -1}])",
                           R"([{"rank": "1"}])", R"([{"rank": 1e30}])"})
    CHECK(progress_from_json(text).empty());
  const auto odd = progress_from_json(
      R"([{"rank": 1, "step": "x", "phase": 7, "busy_ms": -1, "step_ms": 1e999}])");
  CHECK((odd.empty() || odd == std::vector<RankProgress>{{1, -1, "training"}}));
  for (const char* phase : {"\\u001b[2J", "a b", "", "\\u00e4"})
    CHECK(progress_from_json(R"([{"rank": 1, "phase": ")" + std::string(phase) + "\"}]")
              .front()
              .phase == "training");
}

TEST_CASE("a job is idle only if all of its nodes report that they are", "[stragglers]") {
  JobProgress progress;
  const std::vector<NodeId> nodes = {1, 2};
  progress.note_active(1, LeaderTime(50));
  CHECK_FALSE(progress.last_active(nodes));
  progress.note_active(2, LeaderTime(70));
  CHECK(progress.last_active(nodes) == LeaderTime(70));
  progress.note_active(2, LeaderTime(90));
  CHECK(progress.last_active(nodes) == LeaderTime(90));
  progress.end(2);
  CHECK(progress.last_active(nodes) == LeaderTime(50));
}
