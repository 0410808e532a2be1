#include "rendezvous/membership.hpp"

#include <algorithm>
#include <numeric>

#include "tests/support/catch.hpp"
#include "tests/support/cpu_time.hpp"

using namespace mgpu::rendezvous;
using Ids = std::vector<std::uint64_t>;

TEST_CASE("nodes without a requested rank are ordered by arrival", "[membership]") {
  CHECK(assign_node_ranks({{.id = 3}, {.id = 1}, {.id = 2}}, 3) == Ids{1, 2, 3});
  CHECK(assign_node_ranks({}, 3).empty());
}

TEST_CASE("the leader's node gets rank 0 in the first round", "[membership]") {
  CHECK(assign_node_ranks({{.id = 1}, {.id = 2, .leads = true}, {.id = 3}}, 3) == Ids{2, 1, 3});
  SECTION("unless another node has requested rank 0") {
    CHECK(assign_node_ranks({{.id = 1, .node_rank = 0}, {.id = 2, .leads = true}}, 2) == Ids{1, 2});
  }
  SECTION("and keeps its rank in later rounds") {
    CHECK(assign_node_ranks({{.id = 1, .previous = 0}, {.id = 2, .previous = 1, .leads = true}},
                            2) == Ids{1, 2});
  }
}

TEST_CASE("the scheduler's order precedes the order of arrival", "[membership]") {
  CHECK(assign_node_ranks(
            {{.id = 1, .position = 2}, {.id = 2, .position = 0}, {.id = 3, .position = 1}}, 3) ==
        Ids{2, 3, 1});
  CHECK(assign_node_ranks({{.id = 1}, {.id = 2, .position = 9}, {.id = 3, .position = 4}}, 3) ==
        Ids{3, 2, 1});
}

TEST_CASE("a node gets the rank that it requests", "[membership]") {
  CHECK(assign_node_ranks(
            {{.id = 1, .node_rank = 2}, {.id = 2, .node_rank = 0}, {.id = 3, .node_rank = 1}}, 3) ==
        Ids{2, 3, 1});
  CHECK(assign_node_ranks({{.id = 1}, {.id = 2}, {.id = 3, .node_rank = 1}}, 3) == Ids{1, 3, 2});
  SECTION("and if the ranks have gaps, nodes are ordered by the requested rank") {
    CHECK(assign_node_ranks({{.id = 1, .node_rank = 7}, {.id = 2, .node_rank = 3}}, 8) ==
          Ids{2, 1});
    CHECK(assign_node_ranks({{.id = 1, .node_rank = 7}, {.id = 2, .node_rank = 0}, {.id = 3}}, 8) ==
          Ids{2, 1, 3});
  }
  SECTION("even if another node had it in the last round") {
    CHECK(assign_node_ranks({{.id = 1, .previous = 1}, {.id = 2, .node_rank = 1}}, 2) == Ids{1, 2});
  }
}

TEST_CASE("nodes of the last round keep their ranks, and new nodes fill the gaps", "[membership]") {
  CHECK(assign_node_ranks({{.id = 1, .previous = 0}, {.id = 3, .previous = 2}, {.id = 9}}, 3) ==
        Ids{1, 9, 3});
  SECTION("as long as there are enough nodes") {
    CHECK(assign_node_ranks({{.id = 1, .previous = 0}, {.id = 3, .previous = 2}}, 3) == Ids{1, 3});
    CHECK(assign_node_ranks({{.id = 2, .previous = 1}, {.id = 3, .previous = 2}}, 3) == Ids{3, 2});
  }
}

TEST_CASE("with too many nodes, those of the last round stay", "[membership]") {
  CHECK(assign_node_ranks({{.id = 1},
                           {.id = 2, .node_rank = 0},
                           {.id = 3, .previous = 1},
                           {.id = 4, .leads = true},
                           {.id = 5, .previous = 0}},
                          2) == Ids{5, 3});
  SECTION("then the leader's node") {
    CHECK(assign_node_ranks({{.id = 1, .node_rank = 1}, {.id = 2}, {.id = 3, .leads = true}}, 1) ==
          Ids{3});
  }
  SECTION("then nodes with a requested rank, then by the scheduler's order, then by arrival") {
    CHECK(assign_node_ranks(
              {{.id = 1}, {.id = 2}, {.id = 3, .position = 5}, {.id = 4, .node_rank = 9}}, 3) ==
          Ids{4, 3, 1});
  }
}

TEST_CASE("invalid or duplicate numbers exclude no node", "[membership]") {
  auto ids = assign_node_ranks({{.id = 1, .node_rank = 0, .previous = 0},
                                {.id = 2, .node_rank = 0, .previous = 0},
                                {.id = 3, .node_rank = 1'000'000, .position = -7},
                                {.id = 4, .node_rank = -5, .previous = 1'000'000, .leads = true},
                                {.id = 5, .position = 2'147'483'647, .leads = true}},
                               100);
  std::sort(ids.begin(), ids.end());
  CHECK(ids == Ids{1, 2, 3, 4, 5});
}

TEST_CASE("ranks for ten thousand nodes are assigned quickly", "[membership]") {
  std::vector<Candidate> candidates;
  for (int i = 0; i < 10'000; ++i)
    candidates.push_back({.id = static_cast<std::uint64_t>(10'000 - i), .position = i});
  const CpuTime cpu;
  const auto ids = assign_node_ranks(candidates, 10'000);
  CHECK(cpu.seconds() < 1);
  Ids expected(10'000);
  std::iota(expected.rbegin(), expected.rend(), 1);
  CHECK(ids == expected);
}
