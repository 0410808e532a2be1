#include <signal.h>

#include "launcher/options/hide_passwords.hpp"
#include "launcher/options/parse_values.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;

TEST_CASE("rank counts are numbers or words", "[options]") {
  using enum RankCount::Kind;
  CHECK(parse_rank_count("4096") == RankCount{number, 4096});
  CHECK(parse_rank_count(" 8\n") == RankCount{number, 8});  // as from a file in a variable
  CHECK(parse_rank_count("gpu") == RankCount{gpu, 0});
  CHECK(parse_rank_count("cpu") == RankCount{cpu, 0});
  CHECK(parse_rank_count("auto") == RankCount{automatic, 0});
  const std::string bad = GENERATE("0", "-1", "4097", "1e9", "4x", "", " ", "0x4", "4.0", "xpu");
  CAPTURE(bad);
  CHECK_THROWS_WITH(parse_rank_count(bad), "need a whole number from 1 to 4096, or gpu, cpu, auto");
}

TEST_CASE("stream maps address any local rank", "[options]") {
  CHECK(parse_stream_map("0") == StreamMap{});
  CHECK(parse_stream_map("3").of(77) == 3);
  const auto map = parse_stream_map("0:1,11:3, 12:0");
  CHECK(map.of(0) == 1);
  CHECK(map.of(11) == 3);
  CHECK(map.of(12) == 0);
  CHECK(map.of(1) == 0);
  const std::string bad =
      GENERATE("4", "-1", "a", "", "0:4", "0:", ":1", "0:1:2", "0:1,0:2", "0:1,", "1,2");
  CAPTURE(bad);
  CHECK_THROWS_WITH(parse_stream_map(bad), Contains("or a map such as 0:1,11:3"));
}

TEST_CASE("seconds are decimal and limited", "[options]") {
  CHECK(parse_seconds("30") == Milliseconds(30'000));
  CHECK(parse_seconds("0") == Milliseconds(0));
  CHECK(parse_seconds("0.0015") == Milliseconds(2));
  const std::string bad = GENERATE("", "-0.1", "nan", "inf", "1e99", "5s", "0x10", "1 2");
  CAPTURE(bad);
  CHECK_THROWS_WITH(parse_seconds(bad), "need seconds from 0 to 31622400, for example 30 or 2.5");
}

TEST_CASE("a size needs a unit", "[options]") {
  CHECK(parse_size("60G") == 60ull << 30);
  CHECK(parse_size("60 GiB") == 60ull << 30);
  CHECK(parse_size("1.5tb") == 3ull << 39);
  CHECK(parse_size("512mib") == 512ull << 20);
  const auto bad = GENERATE("60", "", "G", "-5G", "0G", "1K", "nanG", "1e30T", "60X", "6 0G");
  CHECK_THROWS_WITH(parse_size(bad), Catch::Matchers::Contains("need a number with a unit"));
}

TEST_CASE("signals are given by name", "[options]") {
  CHECK(parse_signals("SIGTERM, int,Hup") == std::vector{SIGTERM, SIGINT, SIGHUP});
  CHECK(parse_signals("TERM,SIGTERM") == std::vector{SIGTERM});
  CHECK_THROWS_WITH(parse_signals("STOP"), "no program can handle SIGSTOP; leave it out");
  CHECK_THROWS_WITH(parse_signals("SIGCHLD"), Contains("leave it out"));
  const std::string bad = GENERATE("", "15", "SIG", "SIGSIGTERM", "TERM,,INT");
  CAPTURE(bad);
  CHECK_THROWS_WITH(parse_signals(bad), Contains("is not a signal; need names"));
}

TEST_CASE("an endpoint is a host with an optional port", "[options]") {
  const std::string good = GENERATE("h", "h:29400", "10.0.0.1:0", "[::1]:29400", "[fe80::1]", "::1",
                                    "e1:2379,e2:2379", "http://etcd:2379");
  CAPTURE(good);
  CHECK(parse_endpoint(good) == good);
  const std::string bad =
      GENERATE("", ":29400", "h:", "h:x", "h:65536", "h:-1", "[::1", "[]:1", "[::1]29400", "a:1,");
  CAPTURE(bad);
  CHECK_THROWS_WITH(parse_endpoint(bad), Contains("need HOST, HOST:PORT or [IPV6]:PORT"));
}

TEST_CASE("lists and pairs are split", "[options]") {
  CHECK(parse_rank_list("0, 1,12") == std::vector{0, 1, 12});
  CHECK_THROWS_WITH(parse_rank_list("0,-1"), "need local ranks such as 0,1,2");
  CHECK(parse_needles("a b,,c,d") == std::vector<std::string>{"a b,c", "d"});
  CHECK_THROWS_WITH(parse_needles(""), Contains("need strings"));
  CHECK(parse_rdzv_conf(" join_timeout = 60 ,is_host=1") ==
        std::map<std::string, std::string>{{"join_timeout", "60"}, {"is_host", "1"}});
  CHECK_THROWS_WITH(parse_rdzv_conf("=1"), Contains("is not a pair"));
  CHECK(parse_assignment("K=") == std::pair<std::string, std::string>("K", ""));
  CHECK(parse_gpus("0, MIG-1") == std::vector<std::string>{"0", "MIG-1"});
  CHECK_THROWS_WITH(parse_gpus("0,0"), Contains("GPU 0 is listed twice"));
  CHECK_THROWS_WITH(parse_gpus("0-3"), Contains("need GPU numbers such as 0,1"));
}

TEST_CASE("a message about a setting with a password does not contain the password", "[options]") {
  CHECK(hide_passwords("user=a,password=SECR,ETPW,ttl=1") == "user=a,password=...");
  CHECK(hide_passwords("password = S") == "password =...");
  CHECK(hide_passwords("password=") == "password=");
  CHECK(hide_passwords("password,user=a") == "password,user=a");
  CHECK(hide_passwords("http://a:2379,ftp://bob:S,E/C@R@127.0.0.1:1,b:2") ==
        "http://a:2379,ftp://bob:...@127.0.0.1:1,b:2");
  CHECK(hide_passwords("bob:SECRET@h:1") == "bob:...@h:1");
  CHECK(hide_passwords("me@h:1,[::1]:2") == "me@h:1,[::1]:2");

  CHECK_THROWS_WITH(parse_rdzv_conf("user=a,password=SECR,ETPW"),
                    "a part after password= is not a pair; need key=value,key=value (a password "
                    "cannot contain a comma)");
  CHECK_THROWS_WITH(parse_rdzv_conf("password=SECRET,"),
                    "'' is not a pair; need key=value,key=value");
  const std::string all = Origin{"PET_RDZV_CONF", "=", "user=a,password=SECR,ETPW"}.text();
  CHECK(all == "PET_RDZV_CONF=user=a,password=...");
}

TEST_CASE("the value of a flag is a word or a number", "[options]") {
  CHECK(parse_bool("1"));
  CHECK(parse_bool("True"));
  CHECK(parse_bool("yes"));
  CHECK_FALSE(parse_bool("0"));
  CHECK_FALSE(parse_bool("off"));
  CHECK_THROWS_WITH(parse_bool("2x"), "need 1 or 0, true or false");
}

TEST_CASE("policies for kinds of failure are pairs of names", "[options]") {
  using Policies = std::map<FailureKind, FailurePolicy>;
  CHECK(parse_on_failure("nan=give_up") == Policies{{FailureKind::nan, FailurePolicy::give_up}});
  CHECK(parse_on_failure("import_error = restart, gpu_error=exclude_node") ==
        Policies{{FailureKind::import_error, FailurePolicy::restart},
                 {FailureKind::gpu_error, FailurePolicy::exclude_node}});

  const std::string no_kind =
      GENERATE("", "none=restart", "NaN=give_up", "oom", "=restart", "nan=give_up,");
  CAPTURE(no_kind);
  CHECK_THROWS_WITH(parse_on_failure(no_kind),
                    Contains("need KIND=POLICY, where KIND is one of exec_failure, usage, ") &&
                        Contains(", peer_failure, "));
  const std::string no_policy = GENERATE("nan", "nan=", "nan=retry", "nan=give_up=restart");
  CAPTURE(no_policy);
  CHECK_THROWS_WITH(parse_on_failure(no_policy),
                    "need KIND=POLICY, where POLICY is one of restart, restart_changed, "
                    "exclude_node, give_up_if_repeated, give_up");
}
