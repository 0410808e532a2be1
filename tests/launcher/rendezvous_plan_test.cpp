#include "launcher/nodes/rendezvous_plan.hpp"

#include <pwd.h>

#include "launcher/nodes/credentials.hpp"
#include "launcher/nodes/etcd_prefix.hpp"
#include "tests/launcher/cli_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using mgpu::tests::parse;

namespace {

std::optional<RendezvousPlan> plan_of(std::vector<std::string> words) {
  words.emplace_back("train.py");
  return plan_rendezvous(parse(std::move(words)));
}

RendezvousPlan planned(std::vector<std::string> words) {
  auto team = plan_of(std::move(words));
  REQUIRE(team);
  return *team;
}

using Words = std::vector<std::string>;

struct OnlySealer : mgpu::rendezvous::Sealer {
  void deliver_through(Post) override {}
  void seal(std::string, Done) override {}
  void unseal(std::string, Done) override {}
};

}  // namespace

TEST_CASE("a job of one node needs no rendezvous", "[team]") {
  CHECK_FALSE(plan_of({}));
  CHECK_FALSE(plan_of({"--nnodes=1", "--node-rank=0"}));
  CHECK_FALSE(plan_of({"--nnodes=1:1", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1"}));
  CHECK_FALSE(plan_of({"--standalone", "--nnodes=1"}));
  CHECK_THROWS_WITH(plan_of({"--nnodes=1", "--node-rank=1"}),
                    Contains("--node-rank 1: a job of one node has node rank 0 only"));
}

TEST_CASE("a static job uses the master address", "[team]") {
  const auto team =
      planned({"--nnodes=4", "--node-rank=2", "--master-addr=10.0.0.1", "--master-port=1234"});
  CHECK(team.host == "10.0.0.1");
  CHECK(team.port == 1234);
  CHECK(team.runs_leader == false);
  CHECK(team.node_rank == 2);
  CHECK_FALSE(team.etcd);
  CHECK(team.rules.static_ranks);
  CHECK(team.rules.min_nodes == 4);
  CHECK(team.rules.max_nodes == 4);
  CHECK(team.rules.keep_alive == 5s);
  CHECK(team.rules.grace == 30s);
  CHECK(team.rules.join_timeout == 600s);
  CHECK(team.rules.last_call == 30s);

  CHECK(planned({"--nnodes=4", "--node-rank=0", "--master-addr=a"}).runs_leader == true);
  CHECK(planned({"--nnodes=4", "--node-rank=0", "--master-addr=a"}).port == 29500);
  CHECK(planned({"--nnodes=2", "--node-rank=1", "--rdzv-endpoint=[::1]:7"}).host == "::1");
}

TEST_CASE("a dynamic job uses its endpoint", "[team]") {
  const auto team = planned({"--nnodes=2:4", "--rdzv-backend=c10d", "--rdzv-endpoint=head:99"});
  CHECK(team.host == "head");
  CHECK(team.port == 99);
  CHECK_FALSE(team.runs_leader);
  CHECK(team.node_rank == -1);
  CHECK_FALSE(team.rules.static_ranks);
  CHECK(team.rules.min_nodes == 2);
  CHECK(team.rules.max_nodes == 4);

  CHECK(planned({"--nnodes=2:4", "--rdzv-endpoint=head"}).port == 29400);
  CHECK(planned({"--nnodes=2:4", "--rdzv-endpoint=head", "--node-rank=3"}).node_rank == 3);
}

TEST_CASE("torchrun's keys of --rdzv-conf have their torchrun meaning", "[team]") {
  const auto of = [](const std::string& conf) {
    return planned({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h", "--rdzv-conf", conf,
                    "--max-restarts=7", "--retry-delay=2", "--grace=3", "--keep-alive=9"});
  };
  const auto plain = of("store_type=tcp");
  CHECK(plain.rules.keep_alive == 9s);
  CHECK(plain.rules.grace == 3s);
  CHECK(plain.rules.limits.max_restarts == 7);
  CHECK(plain.rules.limits.retry_delay == 2s);
  const auto times = of("join_timeout=90.5,last_call_timeout=4");
  CHECK(times.rules.join_timeout == 90500ms);
  CHECK(times.rules.last_call == 4s);
  CHECK(of("keep_alive_interval=2,keep_alive_max_attempt=4").rules.keep_alive == 8s);
  CHECK(of("keep_alive_interval=2").rules.keep_alive == 6s);
  CHECK(of("keep_alive_max_attempt=2").rules.keep_alive == 10s);
  CHECK(of("keep_alive_interval=2,keep_alive_max_attempt=0").rules.keep_alive == 2s);
  CHECK(of("is_host=1").runs_leader == true);
  CHECK(of("is_host=false").runs_leader == false);
  CHECK(planned({"--nnodes=2", "--node-rank=1", "--master-addr=h", "--rdzv-conf", "timeout=7"})
            .rules.join_timeout == 7s);
}

TEST_CASE("with the etcd backend the leader is elected over etcd", "[team]") {
  const auto team = planned({"--nnodes=1:2", "--rdzv-backend=etcd", "--rdzv-endpoint=a:1,b:2",
                             "--rdzv-conf", "user=u,password=p,protocol=https,cacert=/ca"});
  REQUIRE(team.etcd);
  CHECK(team.host.empty());
  CHECK(team.port == 0);
  REQUIRE(team.etcd->endpoints.size() == 2);
  CHECK(team.etcd->endpoints[0].url() == "https://a:1");
  CHECK(team.etcd->user == "u");
  CHECK(team.etcd->password == "p");
  CHECK(team.etcd->tls.ca == "/ca");
  CHECK(team.etcd_prefix.empty());
  CHECK_FALSE(team.accept_unsigned_state);
}

TEST_CASE("the prefix of the keys in etcd and unsigned values there can be chosen", "[team]") {
  const auto of = [](const std::string& conf) {
    return planned(
        {"--nnodes=1:2", "--rdzv-backend=etcd", "--rdzv-endpoint=a", "--rdzv-conf", conf});
  };
  CHECK(of("prefix=/mgpu-run/alice").etcd_prefix == "/mgpu-run/alice");
  CHECK(of("prefix=/mgpu-run/").etcd_prefix == "/mgpu-run");
  CHECK(of("accept_unsigned_state=true").accept_unsigned_state);
  CHECK_FALSE(of("accept_unsigned_state=false").accept_unsigned_state);
  for (const std::string prefix : {"mgpu-run", "/", "/a b", "/\xc3\xa4"}) {
    CAPTURE(prefix);
    CHECK_THROWS_WITH(of("prefix=" + prefix), Contains("need a path of at most 512 characters"));
  }
  CHECK_THROWS_WITH(of("prefix=/" + std::string(512, 'x')), Contains("need a path of at most"));
  CHECK_THROWS_WITH(of("accept_unsigned_state=perhaps"), Contains("need true or false"));
}

TEST_CASE("munge alone cannot sign what a job has in etcd", "[team]") {
  const mgpu::rendezvous::Credentials munge{.secret = "of this node",
                                            .sealer = std::make_shared<OnlySealer>()};
  const auto check = [&](const Words& words, const mgpu::rendezvous::Credentials& credentials) {
    const auto options = parse(words);
    check_signing(options, *plan_rendezvous(options), credentials);
  };
  Words etcd{"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=a", "x"};
  CHECK_THROWS_AS(check(etcd, munge), UsageError);
  CHECK_THROWS_WITH(check(etcd, munge), Contains("--rdzv-backend etcd: with munge alone") &&
                                            Contains("--rdzv-token-file FILE") &&
                                            Contains("accept_unsigned_state=true"));
  CHECK_NOTHROW(check(etcd, {.secret = "a secret of all nodes"}));
  CHECK_NOTHROW(check({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=a", "x"}, munge));
  etcd.insert(etcd.begin(), "--rdzv-conf=accept_unsigned_state=true");
  CHECK_NOTHROW(check(etcd, munge));
}

TEST_CASE("users have different prefixes in etcd", "[team]") {
  CHECK(default_etcd_prefix(0) == "/mgpu-run/root");
  const passwd* daemon = ::getpwnam("daemon");
  if (daemon) CHECK(default_etcd_prefix(daemon->pw_uid) == "/mgpu-run/daemon");
  CHECK_THROWS_AS(default_etcd_prefix(3'999'999'999), UsageError);
  CHECK_THROWS_WITH(default_etcd_prefix(3'999'999'999),
                    Contains("uid 3999999999") && Contains("--rdzv-conf prefix=/mgpu-run/NAME"));
}

TEST_CASE("contradicting options are one-line errors", "[team]") {
  struct Case {
    Words words;
    std::string line;
  };
  const Words c10d = {"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h"};
  const auto with = [&](const std::string& conf) {
    Words words = c10d;
    words.insert(words.end(), {"--rdzv-conf", conf});
    return words;
  };
  const std::vector<Case> cases = {
      {{"--nnodes=2", "--node-rank=2", "--master-addr=h"},
       "--node-rank 2 is out of range: --nnodes 2 has node ranks 0 to 1"},
      {{"--nnodes=1:2", "--node-rank=0", "--master-addr=h"}, "--nnodes 1:2: an elastic job"},
      {{"--nnodes=2", "--rdzv-backend=c10d"},
       "--rdzv-backend c10d: several nodes need a rendezvous endpoint; set it with "
       "--rdzv-endpoint"},
      {with("join_timout=3"), "unknown key; did you mean join_timeout?"},
      {with("qwertz=3"), "--rdzv-conf qwertz: unknown key; need one of join_timeout, "},
      {with("join_timeout=x"), "--rdzv-conf join_timeout=x: need seconds"},
      {with("join_timeout=-1"), "need seconds"},
      {with("join_timeout=nan"), "need seconds"},
      {with("join_timeout=inf"), "need seconds"},
      {with("join_timeout=1e99"), "need seconds"},
      {with("join_timeout=3s"), "need seconds"},
      {with("is_host=maybe"), "--rdzv-conf is_host=maybe: need true or false"},
      {with("keep_alive_interval=0.1"),
       "keep_alive_interval times keep_alive_max_attempt is less than 0.5 s"},
      {with("keep_alive_interval=30000000,keep_alive_max_attempt=30000000"), "more than a year"},
      {{"--nnodes=1:2", "--rdzv-backend=etcd", "--rdzv-endpoint=ftp://a"}, "--rdzv-endpoint: "},
  };
  for (const auto& [words, line] : cases) {
    CAPTURE(words, line);
    CHECK_THROWS_AS(plan_of(words), UsageError);
    CHECK_THROWS_WITH(plan_of(words), Contains(line));
  }
}

TEST_CASE("an error names the source of the setting", "[team]") {
  const auto message = [](const mgpu::tests::Environment& environment) {
    return plan_rendezvous(parse({"train.py"}, environment));
  };
  CHECK_THROWS_WITH(message({{"PET_NNODES", "2"}, {"PET_RDZV_CONF", "timeout=soon"}}),
                    Contains("PET_RDZV_CONF=timeout=soon: need seconds"));
  CHECK_THROWS_WITH(message({{"PET_NNODES", "2"}, {"PET_RDZV_CONF", "password=SECR,ETPW=1"}}),
                    !Contains("ETPW") && Contains("a password cannot contain a comma"));
  CHECK_THROWS_WITH(message({{"PET_NNODES", "2:4"}}), Contains("PET_NNODES=2:4: an elastic job"));
  CHECK_THROWS_WITH(message({{"MGPU_NODE_RANK", "1"}}), Contains("MGPU_NODE_RANK=1: a job of one"));
}
