#include "launcher/nodes/faulty_nodes.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using CauseKind = Cause::Kind;
using FaultVerdict = FaultyNodes::Verdict;

TEST_CASE("a node that fails first twice in a row for a cause of its own is faulty", "[faulty]") {
  const CauseKind cause =
      GENERATE(CauseKind::gpu_error, CauseKind::host_oom, CauseKind::exec_failure);
  FaultyNodes nodes;
  CHECK(nodes.assess({.node = 2, .rank = 5, .cause = cause}, true) == FaultVerdict::none);

  SECTION("whichever of its ranks fails") {
    CHECK(nodes.assess({.node = 2, .rank = 6, .cause = cause}, true) == FaultVerdict::faulty);
  }
  SECTION("and for whichever of these causes") {
    CHECK(nodes.assess({.node = 2, .rank = 5, .cause = CauseKind::gpu_error}, true) ==
          FaultVerdict::faulty);
  }
  SECTION("but not if another node fails first in between") {
    CHECK(nodes.assess({.node = 3, .rank = 8, .cause = cause}, true) == FaultVerdict::none);
    CHECK(nodes.assess({.node = 2, .rank = 5, .cause = cause}, true) == FaultVerdict::none);
    CHECK(nodes.assess({.node = 2, .rank = 5, .cause = cause}, true) == FaultVerdict::faulty);
  }
  SECTION("but not if the program fails in between") {
    CHECK(nodes.assess({.node = 2, .rank = 5, .cause = CauseKind::signal}, true) ==
          FaultVerdict::none);
    CHECK(nodes.assess({.node = 2, .rank = 5, .cause = cause}, true) == FaultVerdict::none);
  }
  SECTION("but keeps its place as long as the job cannot go on without it") {
    CHECK(nodes.assess({.node = 2, .rank = 5, .cause = cause}, false) == FaultVerdict::none);
    CHECK(nodes.assess({.node = 2, .rank = 5, .cause = cause}, false) == FaultVerdict::none);
    CHECK(nodes.assess({.node = 2, .rank = 5, .cause = cause}, true) == FaultVerdict::faulty);
  }
}

TEST_CASE("failures of the program make no node faulty", "[faulty]") {
  const CauseKind cause =
      GENERATE(CauseKind::usage, CauseKind::import_error, CauseKind::syntax_error,
               CauseKind::python_exception, CauseKind::host_oom_guess, CauseKind::gpu_oom,
               CauseKind::signal, CauseKind::exit_status, CauseKind::none);
  FaultyNodes nodes;
  for (int attempt = 0; attempt < 4; ++attempt)
    CHECK(nodes.assess({.node = 2, .rank = 5, .cause = cause}, true) == FaultVerdict::none);
}

TEST_CASE("a failure that several nodes have at once makes none of them faulty", "[faulty]") {
  FaultyNodes nodes;
  const FaultyNodes::Failure failure{
      .node = 2, .rank = 5, .cause = CauseKind::exec_failure, .on_other_nodes_too = true};
  for (int attempt = 0; attempt < 4; ++attempt)
    CHECK(nodes.assess(failure, true) == FaultVerdict::none);
}

TEST_CASE("when a failure follows its rank to another node, no further node is faulty",
          "[faulty]") {
  FaultyNodes nodes;
  nodes.assess({.node = 2, .host = "host2", .rank = 5, .cause = CauseKind::host_oom}, true);
  REQUIRE(nodes.assess({.node = 2, .host = "host2", .rank = 5, .cause = CauseKind::host_oom},
                       true) == FaultVerdict::faulty);

  SECTION("") {
    CHECK(nodes.assess({.node = 9, .host = "host9", .rank = 5, .cause = CauseKind::host_oom},
                       true) == FaultVerdict::follows_rank);
    CHECK(nodes.cleared() == 2);
    for (int attempt = 0; attempt < 3; ++attempt)
      CHECK(nodes.assess({.node = 9, .host = "host9", .rank = 5, .cause = CauseKind::host_oom},
                         true) == FaultVerdict::none);
    for (int attempt = 0; attempt < 3; ++attempt)
      CHECK(nodes.assess({.node = 1, .host = "host1", .rank = 0, .cause = CauseKind::gpu_error},
                         true) == FaultVerdict::none);
  }
  SECTION("but the same host is no other node, although its agent was restarted") {
    const FaultyNodes::Failure failure{
        .node = 9, .host = "host2", .rank = 5, .cause = CauseKind::host_oom};
    CHECK(nodes.assess(failure, true) == FaultVerdict::none);
    CHECK(nodes.assess(failure, true) == FaultVerdict::faulty);
  }
  SECTION("but another rank's failure does not follow it") {
    CHECK(nodes.assess({.node = 1, .host = "host1", .rank = 0, .cause = CauseKind::host_oom},
                       true) == FaultVerdict::none);
    CHECK(nodes.assess({.node = 1, .host = "host1", .rank = 0, .cause = CauseKind::host_oom},
                       true) == FaultVerdict::faulty);
  }
  SECTION("nor does another cause") {
    CHECK(nodes.assess({.node = 9, .host = "host9", .rank = 5, .cause = CauseKind::gpu_error},
                       true) == FaultVerdict::none);
    CHECK(nodes.assess({.node = 9, .host = "host9", .rank = 5, .cause = CauseKind::gpu_error},
                       true) == FaultVerdict::faulty);
  }
}

TEST_CASE("the user's policy decides for which causes a node is faulty", "[faulty]") {
  FaultyNodes nodes(FailurePolicies{{{CauseKind::cuda_error, FailurePolicy::exclude_node},
                                     {CauseKind::gpu_error, FailurePolicy::restart}}});
  const FaultyNodes::Failure cuda{.node = 2, .rank = 5, .cause = CauseKind::cuda_error};
  CHECK(nodes.assess(cuda, true) == FaultVerdict::none);
  CHECK(nodes.assess(cuda, true) == FaultVerdict::faulty);
  const FaultyNodes::Failure gpu{.node = 3, .rank = 6, .cause = CauseKind::gpu_error};
  CHECK(nodes.assess(gpu, true) == FaultVerdict::none);
  CHECK(nodes.assess(gpu, true) == FaultVerdict::none);
}
