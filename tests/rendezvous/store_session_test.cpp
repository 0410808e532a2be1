#include "rendezvous/store/session.hpp"

#include <map>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/store_requests.hpp"

using namespace mgpu::rendezvous::store;
namespace request = mgpu::tests::request;

namespace {

const std::string kCanceled(1, static_cast<char>(kWaitCanceled));

std::string i64(std::int64_t n) {
  return request::number(n);
}

// A store with clients but without sockets. `replies_to` has the replies to each client.
struct SessionHarness {
  Memory memory;
  std::map<ClientId, Session> sessions;
  std::map<ClientId, std::string> replies_to;

  Session& session(ClientId client) {
    const auto [found, made] = sessions.try_emplace(client, client);
    if (made) send(client, request::validate());
    return found->second;
  }

  bool send(ClientId client, const std::string& bytes) {
    SessionOutput output;
    const bool good = session(client).receive(bytes, memory, output);
    replies_to[client] += output.replies;
    for (const ClientId other : output.released) replies_to[other] += request::kStop;
    return good;
  }

  // The replies to one client's bytes.
  std::string ask(ClientId client, const std::string& bytes) {
    replies_to[client].clear();
    REQUIRE(send(client, bytes));
    return replies_to[client];
  }
};

}  // namespace

TEST_CASE("each operation replies like c10d's server", "[store][session]") {
  SessionHarness harness;
  CHECK(harness.ask(1, request::ping(0xABCD)) == request::number<std::uint32_t>(0xABCD));
  CHECK(harness.ask(1, request::get("/k")) == request::string(""));
  CHECK(harness.ask(1, request::set("/k", "v")).empty());
  CHECK(harness.ask(1, request::get("/k")) == request::string("v"));
  CHECK(harness.ask(1, request::of_pair(Opcode::append, "/k", "w")).empty());
  CHECK(harness.ask(1, request::compare_set("/k", "vw", "x")) == request::string("x"));
  CHECK(harness.ask(1, request::add("/n", 3)) == i64(3));
  CHECK(harness.ask(1, request::of_keys(Opcode::check, {"/k", "/n"})) == std::string(1, kReady));
  CHECK(harness.ask(1, request::of_keys(Opcode::check, {"/k", "/no"})) ==
        std::string(1, kNotReady));
  CHECK(harness.ask(1, request::wait({"/k", "/n"})) == request::kStop);
  CHECK(harness.ask(1, request::multi_set({{"/a", "1"}, {"/b", ""}})).empty());
  CHECK(harness.ask(1, request::of_keys(Opcode::multi_get, {"/b", "/a", "/no"})) ==
        request::string("") + request::string("1") + request::string(""));
  CHECK(harness.ask(1, request::of_keys(Opcode::multi_get, {})).empty());
  CHECK(harness.ask(1, request::opcode(Opcode::num_keys)) == i64(4));
  CHECK(harness.ask(1, request::of_key(Opcode::delete_key, "/a")) == i64(1));
  CHECK(harness.ask(1, request::of_key(Opcode::delete_key, "/a")) == i64(0));
  CHECK(harness.ask(1, request::of_pair(Opcode::queue_push, "/q", "one")).empty());
  CHECK(harness.ask(1, request::of_key(Opcode::queue_length, "/q")) == i64(1));
  CHECK(harness.ask(1, request::of_key(Opcode::queue_pop, "/q")) ==
        i64(1) + request::string("one"));
  CHECK(harness.ask(1, request::of_key(Opcode::queue_pop, "/q")) == i64(0));
  CHECK(harness.ask(1, request::barrier("/bar", 1)) == request::kStop);
  CHECK(harness.ask(1, request::opcode(Opcode::cancel_wait)) == kCanceled);
}

TEST_CASE("LIST_KEYS returns the number of keys and every key", "[store][session]") {
  SessionHarness harness;
  CHECK(harness.ask(1, request::opcode(Opcode::list_keys)) == i64(0));
  harness.ask(1, request::set("/one", "") + request::set("init/", ""));
  const auto listed = harness.ask(1, request::opcode(Opcode::list_keys));
  const auto one = request::string("/one");
  const auto init = request::string("init/");
  CHECK((listed == i64(2) + one + init || listed == i64(2) + init + one));
}

TEST_CASE("replies to a client are in the order of its requests", "[store][session]") {
  SessionHarness harness;
  SECTION("many requests at once") {
    CHECK(harness.ask(1, request::set("/k", "1") + request::get("/k") + request::add("/k", 1) +
                             request::get("/k")) ==
          request::string("1") + i64(2) + request::string("2"));
  }
  SECTION("also if a request ends the client's own wait") {
    CHECK(harness.ask(1, request::wait({"/k"}) + request::set("/k", "v") + request::get("/k")) ==
          request::kStop + request::string("v"));
  }
}

TEST_CASE("a waiting client is released when another creates the key", "[store][session]") {
  SessionHarness harness;
  CHECK(harness.ask(1, request::wait({"/a", "/b"})).empty());
  CHECK(harness.ask(2, request::set("/a", "")).empty());
  CHECK(harness.replies_to[1].empty());
  CHECK(harness.ask(2, request::set("/b", "")).empty());
  CHECK(harness.replies_to[1] == request::kStop);

  SECTION("unless it has canceled the wait") {
    CHECK(harness.ask(1, request::wait({"/c"})).empty());
    CHECK(harness.ask(1, request::opcode(Opcode::cancel_wait)) == kCanceled);
    harness.ask(2, request::set("/c", ""));
    CHECK(harness.replies_to[1] == kCanceled);
  }
  SECTION("a barrier releases all") {
    CHECK(harness.ask(1, request::barrier("/bar", 3)).empty());
    CHECK(harness.ask(2, request::barrier("/bar", 3)).empty());
    CHECK(harness.ask(3, request::barrier("/bar", 3)) == request::kStop);
    CHECK(harness.replies_to[1] == request::kStop);
    CHECK(harness.replies_to[2] == request::kStop);
  }
}

TEST_CASE("ADD on a value that is not a number closes that client only", "[store][session]") {
  SessionHarness harness;
  harness.ask(1, request::set("/w", "word") + request::wait({"/later"}));
  const auto bad = GENERATE(request::add("/w", 1), request::barrier("/w", 2));
  CHECK_FALSE(harness.send(2, request::set("/later", "") + request::get("/w") + bad));
  CHECK(harness.replies_to[2] == request::string("word"));  // earlier requests were answered
  CHECK(harness.replies_to[1] == request::kStop);
  CHECK(harness.ask(1, request::get("/w")) == request::string("word"));
}

TEST_CASE("processing stops when the output is full, and continues from there",
          "[store][session]") {
  SessionHarness harness;
  constexpr std::size_t kLarge = 100 << 10;
  const std::string value(kLarge, 'x');
  harness.ask(1, request::set("/large", value));
  const auto reply = request::string(value);

  // Repeats until nothing is pending; no output exceeds its limit by more than one reply.
  const auto all_turns = [&](const std::string& bytes) {
    std::string all;
    SessionOutput output;
    REQUIRE(harness.session(1).receive(bytes, harness.memory, output));
    CHECK(harness.session(1).has_pending());
    while (true) {
      CHECK(output.replies.size() < Session::kMaxOutputBytes + reply.size());
      all += output.replies;
      if (!harness.session(1).has_pending()) return all;
      output.clear();
      REQUIRE(harness.session(1).receive({}, harness.memory, output));
    }
  };

  SECTION("for many requests") {
    std::string requests, expected;
    for (int i = 0; i < 50; ++i) {
      requests += request::get("/large") + request::add("/n", 1);
      expected += reply + i64(i + 1);
    }
    CHECK(all_turns(requests) == expected);
  }
  SECTION("for one request with large replies") {
    std::string keys, expected;
    for (int i = 0; i < 50; ++i) {
      keys += request::string(i % 2 ? "/large" : "/none");
      expected += i % 2 ? reply : request::string("");
    }
    const auto request =
        request::opcode(Opcode::multi_get) + request::number<std::uint64_t>(50) + keys;
    CHECK(all_turns(request + request::ping(9)) == expected + request::number<std::uint32_t>(9));
  }
}

TEST_CASE("a large value that arrives in pieces is stored", "[store][session]") {
  SessionHarness harness;
  std::string value(kMaxValueBytes, 'a');
  for (std::size_t i = 0; i < value.size(); i += 1000) value[i] = static_cast<char>(i / 1000);
  const auto bytes = request::set("/big", value) + request::get("/small");
  harness.ask(1, request::set("/small", "s"));
  harness.replies_to[1].clear();
  for (std::size_t i = 0; i < bytes.size(); i += 65536) harness.send(1, bytes.substr(i, 65536));
  CHECK(harness.replies_to[1] == request::string("s"));
  REQUIRE(harness.memory.get("/big"));
  CHECK(*harness.memory.get("/big") == value);
}
