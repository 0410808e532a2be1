#include <chrono>

#include "rendezvous/etcd/job_view.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous::etcd;
using namespace std::chrono_literals;
using mgpu::rendezvous::BootClock;

namespace {

const JobKeys kKeys = JobKeys::of("/mgpu-run", "j");

KeyValue leader(const char* address, std::int64_t revision) {
  return {.key = "/mgpu-run/j/leader",
          .value = address,
          .create_revision = revision,
          .mod_revision = revision,
          .lease = 1};
}

}  // namespace

TEST_CASE("no job's folder is a prefix of another's", "[etcd]") {
  const auto folder = [](const char* job) { return JobKeys::of("/mgpu-run/alice", job).folder; };
  CHECK(JobKeys::of("/mgpu-run", "a-b_c.9").leader == "/mgpu-run/a-b_c.9/leader");
  CHECK(folder("a/b") == "/mgpu-run/alice/a%2Fb/");
  CHECK(folder("a%2Fb") == "/mgpu-run/alice/a%252Fb/");
  CHECK(folder("\xc3\xa4") == "/mgpu-run/alice/%C3%A4/");
}

TEST_CASE("values older than the known ones are ignored", "[etcd]") {
  JobView view(kKeys);
  view.replace({leader("a:1", 5)}, 9);
  REQUIRE(view.leader());
  SECTION("from a read") {
    view.replace({}, 8);
    CHECK(view.leader());
    view.replace({}, 10);
    CHECK_FALSE(view.leader());
  }
  SECTION("from an event") {
    view.apply({.removed = true, .key = {.key = kKeys.leader, .mod_revision = 7}});
    CHECK(view.leader());
    view.apply({.removed = true, .key = {.key = kKeys.leader, .mod_revision = 11}});
    CHECK_FALSE(view.leader());
  }
  SECTION("from a read that was in progress when a newer event arrived") {
    view.apply({.key = leader("b:2", 12)});
    view.replace({leader("a:1", 5)}, 11);
    CHECK(view.leader()->value == "b:2");
    CHECK(view.newest_revision() == 12);
  }
}

TEST_CASE("other jobs' keys have no effect", "[etcd]") {
  JobView view(kKeys);
  view.apply({.key = {.key = "/mgpu-run/j/other", .mod_revision = 3}});
  view.replace({{.key = "/mgpu-run/k/leader", .mod_revision = 4}}, 4);
  CHECK_FALSE(view.leader());
  CHECK(view.state_revision() == 0);
}

TEST_CASE("a lease is counted from when its request was sent", "[etcd]") {
  const BootClock::time_point sent(100s);
  LeaseTimes times;
  CHECK_FALSE(times.is_valid(sent));
  times.confirmed(sent, 10s);
  CHECK(times.until() == sent + 9500ms);
  CHECK(times.is_valid(sent + 9400ms));
  CHECK_FALSE(times.is_valid(sent + 9500ms));
  CHECK(times.renew_at() > sent + 3300ms);
  CHECK(times.renew_at() < sent + 3400ms);

  SECTION("a renewal counts from when it was sent") {
    times.confirmed(sent + 4s, 10s);
    CHECK(times.until() == sent + 13500ms);
  }
  SECTION("a response to an older request does not shorten it") {
    times.confirmed(sent - 4s, 10s);
    CHECK(times.until() == sent + 9500ms);
  }
}

TEST_CASE("a save is conditional on the term and the previous state", "[etcd]") {
  const auto save = save_transaction(kKeys, 5, 7, "s", 3);
  REQUIRE(save.if_all.size() == 2);
  CHECK(save.if_all[0].key == kKeys.leader);
  CHECK(save.if_all[0].what == Compare::What::create_revision);
  CHECK(save.if_all[0].is == 5);
  CHECK(save.if_all[1].key == kKeys.state);
  CHECK(save.if_all[1].what == Compare::What::mod_revision);
  CHECK(save.if_all[1].is == 7);
  REQUIRE(save.then.size() == 1);
  CHECK(save.then[0].lease == 3);
}
