#include "rendezvous/protocol.hpp"

#include <limits>

#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;
using Catch::Matchers::Contains;

namespace {

template <class Kind>
Kind through(const Kind& message) {
  const Message read = decode(encode(message));
  REQUIRE(std::holds_alternative<Kind>(read));
  // Encoding the decoded message gives the same text: every field was preserved.
  CHECK(encode(read) == encode(message));
  return std::get<Kind>(read);
}

}  // namespace

TEST_CASE("every message is encoded and decoded unchanged", "[protocol]") {
  const auto hello = through(Hello{"job", "00ff", "agent", true});
  CHECK(hello.job == "job");
  CHECK(hello.nonce == "00ff");
  CHECK(hello.purpose == "agent");
  CHECK(hello.sealed);
  const auto challenge = through(Challenge{"00", "11", "sealed"});
  CHECK(challenge.nonce == "00");
  CHECK(challenge.proof == "11");
  CHECK(challenge.sealed == "sealed");
  CHECK(through(Proof{"22"}).proof == "22");
  const auto refusal = through(Refusal{75, "why \"so\" \xc3\xa4"});
  CHECK(refusal.status == 75);
  CHECK(refusal.why == "why \"so\" \xc3\xa4");
  const auto welcome = through(Welcome{std::numeric_limits<std::uint64_t>::max(), -1,
                                       std::numeric_limits<std::int64_t>::min()});
  CHECK(welcome.session == std::numeric_limits<std::uint64_t>::max());
  CHECK(welcome.heartbeat_interval == -1);
  CHECK(welcome.keep_alive == std::numeric_limits<std::int64_t>::min());
  CHECK(through(Notice{"text"}).text == "text");
  CHECK(through(Notice{"text", true}).excluded);
  const auto begin = through(Begin{1, 2, 3, 4, 5, 6, 7, 9, "host", 8, true, 10});
  CHECK(std::pair(begin.direct_store, begin.to_rejoin) == std::pair(true, 10));
  CHECK(std::tuple(begin.round, begin.restarts, begin.oom_count, begin.node_rank, begin.nodes,
                   begin.base_rank, begin.world_size, begin.grace, begin.master_addr,
                   begin.master_port) == std::tuple(1, 2, 3, 4, 5, 6, 7, 9, "host", 8));
  CHECK(through(Stop{9, "why", 2, true}).failed);
  const auto stop = through(Stop{9, "why", 2});
  CHECK_FALSE(stop.failed);
  CHECK(std::tuple(stop.round, stop.why, stop.signo) == std::tuple(9, "why", 2));
  const auto end = through(End{7, "words"});
  CHECK(std::tuple(end.status, end.message) == std::tuple(7, "words"));
  CHECK(through(StatusReply{"{}"}).text == "{}");
  const auto join = through(Join{"host", 8, 1, 2, true, 3, 10, 4, 11, 5, 6, 7, true});
  CHECK(join.excluded);
  CHECK(std::tuple(join.host, join.nproc, join.node_rank, join.position, join.leads,
                   join.rank0_port, join.grace, join.nodes, join.lease_and_grace, join.rounds,
                   join.restarts,
                   join.oom_count) == std::tuple("host", 8, 1, 2, true, 3, 10, 4, 11, 5, 6, 7));
  const auto failing = through(Failing{1, std::numeric_limits<std::int64_t>::max(), 15});
  CHECK(std::tuple(failing.round, failing.when, failing.signo) ==
        std::tuple(1, std::numeric_limits<std::int64_t>::max(), 15));
  const auto ended = through(NodeEnded{1, Outcome::failed, 2, "signal", 3, 4, "{}", 5});
  CHECK(ended.rank == 5);
  CHECK(std::tuple(ended.round, ended.outcome, ended.when, ended.cause, ended.status, ended.lasted,
                   ended.details) == std::tuple(1, Outcome::failed, 2, "signal", 3, 4, "{}"));
  const auto certain = through(NodeEnded{.certain = true, .text = "a module is missing"});
  CHECK(std::tuple(certain.certain, certain.text) == std::tuple(true, "a module is missing"));
  const auto waited = through(NodeEnded{.waited = true, .suspended = 3});
  CHECK(std::pair(waited.waited, waited.suspended) == std::pair(true, 3));
  const auto leave = through(Leave{15, "why"});
  CHECK(std::tuple(leave.signo, leave.why) == std::tuple(15, "why"));
  const auto pause = through(Pause{true, true, "host"});
  CHECK(std::tuple(pause.ranks, pause.leader, pause.host) == std::tuple(true, true, "host"));
  CHECK(through(Suspension{true}).suspended);
  const auto progress = through(Progress{3, "[{\"phase\": \"\\u00e4\"}]"});
  CHECK(progress.round == 3);
  CHECK(progress.ranks == "[{\"phase\": \"\\u00e4\"}]");
  CHECK(through(Progress{.idle = 7}).idle == 7);
  const auto idle = through(JobIdle{3, 8});
  CHECK(std::tuple(idle.round, idle.time) == std::tuple(3, 8));
  through(StatusRequest{});
}

TEST_CASE("an outcome has one word in a message", "[protocol]") {
  struct Case {
    Outcome outcome;
    std::string word;
  };
  const auto [outcome, word] = GENERATE(values<Case>(
      {{Outcome::done, "done"}, {Outcome::stopped, "stopped"}, {Outcome::failed, "failed"}}));
  CHECK(name_of(outcome) == word);
  CHECK(outcome_named(word) == outcome);
  CHECK_THAT(encode(NodeEnded{.outcome = outcome}), Contains("\"outcome\":\"" + word + "\""));
}

TEST_CASE("an unknown outcome counts as stopped", "[protocol]") {
  const auto* text = GENERATE(R"({"is":"ended","outcome":"Done"})",
                              R"({"is":"ended","outcome":""})", R"({"is":"ended"})");
  CAPTURE(text);
  CHECK(std::get<NodeEnded>(decode(text)).outcome == Outcome::stopped);
}

TEST_CASE("missing fields have defaults, and unknown fields are ignored", "[protocol]") {
  const auto join = std::get<Join>(decode(R"({"is":"join","host":"a","later":"version"})"));
  CHECK(join.host == "a");
  CHECK(join.nproc == 1);
  CHECK(join.node_rank == -1);
}

TEST_CASE("text that is not UTF-8 is sent in a form that can be decoded", "[protocol]") {
  const auto notice = std::get<Notice>(decode(encode(Notice{"a\xff\xc3"})));
  CHECK_THAT(notice.text, Catch::Matchers::StartsWith("a"));
}

TEST_CASE("an invalid message is rejected with a reason", "[protocol]") {
  struct Case {
    std::string text, why;
  };
  const auto [text, why] = GENERATE(values<Case>({
      {"", "not a JSON object"},
      {"[]", "not a JSON object"},
      {"1", "not a JSON object"},
      {"null", "not a JSON object"},
      {"{", "not a JSON object"},
      {R"({"is":"notice"} x)", "not a JSON object"},
      {"{\"is\":\"notice\",\"text\":\"\xff\"}", "not a JSON object"},
      {"{}", "without a type"},
      {R"({"is":1})", "without a type"},
      {R"({"is":"Join"})", "unknown type Join"},
      {R"({"is":""})", "unknown type ''"},
      {"{\"is\":\"a\\u001b[31m\"}", "unknown type a?[31m"},
      {R"({"is":"join","host":1})", "\"host\" has the wrong type"},
      {R"({"is":"join","nproc":"1"})", "\"nproc\" has the wrong type"},
      {R"({"is":"join","nproc":1.0})", "\"nproc\" has the wrong type"},
      {R"({"is":"join","nproc":null})", "\"nproc\" has the wrong type"},
      {R"({"is":"join","leads":1})", "\"leads\" has the wrong type"},
      {R"({"is":"ended","outcome":1})", "\"outcome\" has the wrong type"},
      {R"({"is":"notice","text":{}})", "\"text\" has the wrong type"},
      {R"({"is":"notice","text":["a"]})", "\"text\" has the wrong type"},
  }));
  CAPTURE(text);
  CHECK_THROWS_AS(decode(text), ProtocolError);
  CHECK_THROWS_WITH(decode(text), Contains(why));
}

TEST_CASE("a number that does not fit its field is rejected, not truncated", "[protocol]") {
  const auto* text =
      GENERATE(R"({"is":"join","nproc":2147483648})", R"({"is":"join","nproc":-2147483649})",
               R"({"is":"join","nproc":18446744073709551615})",
               R"({"is":"failing","when":9223372036854775808})", R"({"is":"welcome","session":-1})",
               R"({"is":"welcome","session":18446744073709551616})");
  CAPTURE(text);
  CHECK_THROWS_AS(decode(text), ProtocolError);
}

TEST_CASE("a nested message does not overflow the stack", "[protocol]") {
  std::string deep = R"({"is":"notice","text":)";
  deep += std::string(1'000'000, '[');
  CHECK_THROWS_AS(decode(deep), ProtocolError);
  CHECK_THROWS_AS(decode(R"({"is":"notice","x":{"y":{"z":{"a":1}}}})"), ProtocolError);
}
