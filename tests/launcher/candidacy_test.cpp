#include "launcher/nodes/candidacy.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using Actions = Candidacy::Actions;
using Status = mgpu::rendezvous::etcd::ElectionStatus;

namespace {

const std::string kHere = "10.0.0.1";
const std::string kLeader = "10.0.0.2:29400";
const PrintLine kLeadershipLost{
    "this node is no longer the leader: another node is, or etcd cannot be reached"};
const FollowLeader kNoLeader{"", "no node is the leader"};

Candidacy new_candidacy(const std::string& address = kHere) {
  return Candidacy({.job = "test", .address = address, .max_nodes = 3});
}

std::string state(const JobState& state) {
  return job_state_json(state);
}

// This node leads, in its own term.
ElectionChanged elected(std::int64_t term = 5) {
  return {.status = {.is_leader = true, .leader = "10.0.0.1:4000", .term = term}, .standing = true};
}

ElectionChanged other_leads(std::optional<std::string> saved = {}) {
  return {.status = {.leader = kLeader, .term = 4, .state = std::move(saved)}, .standing = true};
}

// A candidacy whose node leads since the term 5.
Candidacy leading() {
  Candidacy candidacy = new_candidacy();
  candidacy.handle(elected());
  candidacy.handle(LeaderStarted{});
  return candidacy;
}

}  // namespace

TEST_CASE("a node becomes a candidate with etcd's first answer", "[candidacy]") {
  Candidacy candidacy = new_candidacy();
  CHECK(candidacy.handle(ElectionChanged{}) == Actions{Stand{kHere}, kNoLeader});
  SECTION("and stays one") {
    CHECK(candidacy.handle(ElectionChanged{.standing = true}) == Actions{kNoLeader});
  }
  SECTION("and again if the election has ended its candidacy") {
    CHECK(candidacy.handle(ElectionChanged{.standing = false}) == Actions{Stand{kHere}, kNoLeader});
  }
}

TEST_CASE("a node that does not know its address finds it first", "[candidacy]") {
  Candidacy candidacy = new_candidacy("");
  SECTION("not while etcd cannot be reached") {
    CHECK(candidacy.handle(ElectionChanged{{.problem = "connection refused"}}) ==
          Actions{FollowLeader{"", "etcd: connection refused"}});
  }
  CHECK(candidacy.handle(ElectionChanged{}) == Actions{FindAddress{}});
  SECTION("and then is a candidate with it") {
    CHECK(candidacy.handle(AddressFound{"10.0.0.9"}) == Actions{Stand{"10.0.0.9"}, kNoLeader});
    CHECK(candidacy.handle(ElectionChanged{.standing = true}) == Actions{kNoLeader});
  }
  SECTION("and the job ends if it cannot be determined") {
    CHECK(candidacy.handle(AddressFound{}) ==
          Actions{EndJob{2,
                         "cannot determine the address at which other nodes reach this one; "
                         "set it with --local-addr"}});
    CHECK(candidacy.handle(ElectionChanged{}).empty());
  }
}

TEST_CASE("wrong permissions in etcd end a job that has not begun", "[candidacy]") {
  const ElectionChanged denied{.status = {.problem = "permission denied", .permanent = true},
                               .standing = true};
  Candidacy candidacy = new_candidacy();
  SECTION("at once") {
    CHECK(candidacy.handle(denied) == Actions{EndJob{2, "etcd: permission denied"}});
  }
  SECTION("but not one that runs") {
    candidacy.handle(other_leads(state({.job = 4})));
    CHECK(candidacy.handle(denied) == Actions{FollowLeader{"", "etcd: permission denied"}});
  }
}

TEST_CASE("an elected node starts a leader", "[candidacy]") {
  Candidacy candidacy = new_candidacy();
  ElectionChanged news = elected();
  SECTION("with the counts of its agent") {
    news.counts = {.rounds = 2, .restarts = 1, .oom_count = 1};
    CHECK(candidacy.handle(news) == Actions{StartLeader{.counts = news.counts}});
  }
  SECTION("or with larger ones of the saved state, and the nodes that may still run") {
    news.counts = {.rounds = 2, .restarts = 1, .oom_count = 1};
    news.status.state = state({.job = 3,
                               .counts = {.rounds = 4, .restarts = 0, .oom_count = 2},
                               .nodes = 3,
                               .left = 1,
                               .lease_and_grace = 45s});
    CHECK(candidacy.handle(news) ==
          Actions{StartLeader{.counts = {.rounds = 4, .restarts = 1, .oom_count = 2},
                              .nodes_before = 3,
                              .left_before = 1,
                              .lease_and_grace_before = 45s}});
  }
  SECTION("that waits for all nodes if the state of its job is not accepted") {
    candidacy.handle(other_leads(state({.job = 4, .nodes = 2})));
    news.status.state_rejected = "the state is not signed";
    CHECK(candidacy.handle(news) ==
          Actions{PrintLine{"the state is not signed"}, StartLeader{.nodes_before = 3}});
  }
  SECTION("that waits for nobody if a new job finds a state that is not accepted") {
    news.status.state_rejected = "the state is not signed";
    CHECK(candidacy.handle(news) == Actions{PrintLine{"the state is not signed"}, StartLeader{}});
  }
  CHECK(candidacy.handle(LeaderStarted{}) ==
        Actions{FollowLeader{"10.0.0.1:4000", "no node is the leader"}});
  // Only one.
  CHECK(candidacy.handle(elected()) ==
        Actions{FollowLeader{"10.0.0.1:4000", "no node is the leader"}});
}

TEST_CASE("an elected node does not start a leader for a job that has ended", "[candidacy]") {
  Candidacy candidacy = new_candidacy();
  candidacy.handle(other_leads(state({.job = 4})));
  ElectionChanged news = elected();
  news.status.state = state({.job = 4, .ended = 3});
  CHECK(candidacy.handle(news) == Actions{EndJob{3, "the job has ended"}});
}

TEST_CASE("a node where no leader can start pauses, so that another can lead", "[candidacy]") {
  Candidacy candidacy = new_candidacy();
  candidacy.handle(elected());
  CHECK(candidacy.handle(LeaderNotStarted{"port 4000 is in use"}) ==
        Actions{PrintLine{"port 4000 is in use"}, StepAside{}});
  CHECK(candidacy.handle(ElectionChanged{}) == Actions{kNoLeader});
  SECTION("and tries again if older news says that it is elected") {
    CHECK(candidacy.handle(elected()) == Actions{StartLeader{}});
  }
  CHECK(candidacy.handle(PauseOver{}) == Actions{Stand{kHere}});
  SECTION("and prints the reason once") {
    candidacy.handle(elected());
    CHECK(candidacy.handle(LeaderNotStarted{"port 4000 is in use"}) == Actions{StepAside{}});
    candidacy.handle(PauseOver{});
    candidacy.handle(elected());
    CHECK(candidacy.handle(LeaderNotStarted{"too many open files"}) ==
          Actions{PrintLine{"too many open files"}, StepAside{}});
  }
  SECTION("and leads if it can the next time") {
    candidacy.handle(elected());
    CHECK_FALSE(candidacy.handle(LeaderStarted{}).empty());
    CHECK(candidacy.handle(PauseOver{}).empty());
  }
}

TEST_CASE("a node that is no longer elected stops its leader and stands again", "[candidacy]") {
  Candidacy candidacy = leading();
  ElectionChanged news = other_leads();
  news.standing = false;
  CHECK(candidacy.handle(news) == Actions{kLeadershipLost, StopLeader{}, Stand{kHere},
                                          FollowLeader{kLeader, "no node is the leader"}});
  CHECK(candidacy.handle(other_leads()) == Actions{FollowLeader{kLeader, "no node is the leader"}});
}

TEST_CASE("a node follows the elected leader", "[candidacy]") {
  Candidacy candidacy = new_candidacy();
  ElectionChanged news = other_leads();
  SECTION("at its address") {
    CHECK(candidacy.handle(news) == Actions{FollowLeader{kLeader, "no node is the leader"}});
  }
  SECTION("and knows why there is none") {
    news.status.leader.clear();
    SECTION("etcd cannot be reached") {
      news.status.problem = "timed out";
      CHECK(candidacy.handle(news) == Actions{FollowLeader{"", "etcd: timed out"}});
    }
    SECTION("its key is not accepted") {
      news.status.leader_rejected = "the leader's key is not signed";
      CHECK(candidacy.handle(news) == Actions{FollowLeader{"", "the leader's key is not signed"}});
    }
  }
}

TEST_CASE("a connected node stays with its leader when the key is overwritten", "[candidacy]") {
  Candidacy candidacy = new_candidacy();
  ElectionChanged news{.status = {.leader_rejected = "the leader's key is not signed"},
                       .standing = true,
                       .connected = true};
  CHECK(candidacy.handle(news) == Actions{PrintLine{"the leader's key is not signed"}});
  CHECK(candidacy.handle(news).empty());
}

TEST_CASE("a state of an older job with the same id is ignored", "[candidacy]") {
  Candidacy candidacy = new_candidacy();
  SECTION("if it has ended before this node began") {
    candidacy.handle(other_leads(state({.job = 2, .ended = 0})));
    CHECK(candidacy.handle(LeaderFollowed{.connected = false}).empty());
    ElectionChanged news = elected();
    news.status.state = state({.job = 2, .nodes = 3, .ended = 0});
    CHECK(candidacy.handle(news) == Actions{StartLeader{}});
  }
  SECTION("if this node's job began later") {
    candidacy.handle(other_leads(state({.job = 4})));
    CHECK(candidacy.handle(other_leads(state({.job = 2, .ended = 0}))) ==
          Actions{FollowLeader{kLeader, "no node is the leader"}});
    CHECK(candidacy.handle(LeaderFollowed{.connected = false}).empty());
  }
}

TEST_CASE("a node ends when a later job with its id runs", "[candidacy]") {
  Candidacy candidacy = new_candidacy();
  candidacy.handle(other_leads(state({.job = 4})));
  CHECK(candidacy.handle(other_leads(state({.job = 9}))) ==
        Actions{EndJob{1, "another job with the id test is running now"}});
  CHECK(candidacy.handle(other_leads()).empty());
}

TEST_CASE("a node learns from etcd that its job has ended", "[candidacy]") {
  Candidacy candidacy = new_candidacy();
  candidacy.handle(other_leads(state({.job = 4})));
  candidacy.handle(other_leads(state({.job = 4, .ended = 3})));
  SECTION("if it is not connected to the leader") {
    CHECK(candidacy.handle(LeaderFollowed{.connected = false}) ==
          Actions{EndJob{3, "the job has ended"}});
    CHECK(candidacy.handle(PauseOver{}).empty());
  }
  SECTION("otherwise from the leader") {
    CHECK(candidacy.handle(LeaderFollowed{.connected = true}).empty());
  }
}

TEST_CASE("each round of a leading node is saved, with the term of the job's first leader",
          "[candidacy]") {
  Candidacy candidacy = new_candidacy();
  ElectionChanged news = elected(8);
  SECTION("its own") {
    candidacy.handle(news);
    candidacy.handle(LeaderStarted{});
    CHECK(candidacy.handle(StateChanged{{.rounds = 1}, 2, 35s}) ==
          Actions{
              SaveState{{.job = 8, .counts = {.rounds = 1}, .nodes = 2, .lease_and_grace = 35s}}});
  }
  SECTION("that of an earlier leader") {
    news.status.state = state({.job = 3, .counts = {.rounds = 1}, .nodes = 2});
    candidacy.handle(news);
    candidacy.handle(LeaderStarted{});
    CHECK(candidacy.handle(StateChanged{{.rounds = 2}, 2}) ==
          Actions{SaveState{{.job = 3, .counts = {.rounds = 2}, .nodes = 2}}});
  }
}

TEST_CASE("a leading node that leaves hands over", "[candidacy]") {
  Candidacy candidacy = leading();
  SECTION("to the other nodes, which do not wait for it") {
    candidacy.handle(StateChanged{{.rounds = 1}, 2});
    CHECK(candidacy.handle(LeaveRequested{.status = 143, .alone = false}) ==
          Actions{StopLeader{},
                  SaveBeforeLeaving{{.job = 5, .counts = {.rounds = 1}, .nodes = 2, .left = 1}}});
    CHECK(candidacy.handle(ElectionChanged{}).empty());
    CHECK(candidacy.handle(JobIsOver{}).empty());
    CHECK(candidacy.handle(StateSaved{}) == Actions{Resign{}});
  }
  SECTION("without a state if no round has begun") {
    CHECK(candidacy.handle(LeaveRequested{.status = 143, .alone = false}) ==
          Actions{StopLeader{}, Resign{}});
  }
  SECTION("to nobody if it is alone: the job has ended") {
    candidacy.handle(StateChanged{{.rounds = 1}, 1});
    CHECK(candidacy.handle(LeaveRequested{.status = 143, .alone = true}) ==
          Actions{StopLeader{}, SaveEnd{{.job = 5, .ended = 143}}});
    CHECK(candidacy.handle(StateSaved{}) == Actions{Resign{}});
  }
  CHECK(candidacy.handle(Resigned{}) == Actions{EndJob{143, ""}});
  CHECK(candidacy.handle(ProcessEnds{.leading = false, .status = 143}) == Actions{CloseElection{}});
}

TEST_CASE("a process that ends before its job does not leave the election open", "[candidacy]") {
  SECTION("as a follower") {
    Candidacy candidacy = new_candidacy();
    candidacy.handle(other_leads());
    CHECK(candidacy.handle(ProcessEnds{.leading = false, .status = 130}) ==
          Actions{CloseElection{}});
  }
  SECTION("as the leader") {
    Candidacy candidacy = leading();
    CHECK(candidacy.handle(ProcessEnds{.leading = true, .status = 130}) ==
          Actions{SaveEnd{{.job = 5, .ended = 130}}});
    CHECK(candidacy.handle(StateSaved{}) == Actions{Resign{}});
    CHECK(candidacy.handle(Resigned{}) == Actions{CloseElection{}});
  }
}

TEST_CASE("a follower does nothing more when its job has ended", "[candidacy]") {
  Candidacy candidacy = new_candidacy("");
  candidacy.handle(ElectionChanged{});
  candidacy.handle(JobIsOver{});
  CHECK(candidacy.handle(AddressFound{kHere}).empty());
  CHECK(candidacy.handle(elected()).empty());
  CHECK(candidacy.handle(LeaderFollowed{.connected = false}).empty());
}

TEST_CASE("a node that leaves just after the end of its job hands over too", "[candidacy]") {
  Candidacy candidacy = leading();
  candidacy.handle(JobIsOver{});
  CHECK(candidacy.handle(LeaveRequested{.status = 143, .alone = true}) ==
        Actions{StopLeader{}, SaveEnd{{.job = 5, .ended = 143}}});
}

TEST_CASE("the end of the job ends the candidacy", "[candidacy]") {
  Candidacy candidacy = leading();
  CHECK(candidacy.handle(JobIsOver{}).empty());
  CHECK(candidacy.handle(ElectionChanged{}).empty());
  CHECK(candidacy.handle(PauseOver{}).empty());
  SECTION("and the leader saves its status before it resigns") {
    CHECK(candidacy.handle(ProcessEnds{.leading = true, .status = 7}) ==
          Actions{SaveEnd{{.job = 5, .ended = 7}}});
    CHECK(candidacy.handle(StateSaved{}) == Actions{Resign{}});
    CHECK(candidacy.handle(Resigned{}) == Actions{CloseElection{}});
  }
  SECTION("and a node that cannot lead any more saves nothing") {
    CHECK(candidacy.handle(ProcessEnds{.leading = false, .status = 7}) == Actions{CloseElection{}});
  }
}
