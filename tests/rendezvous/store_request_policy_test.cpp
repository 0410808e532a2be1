#include "rendezvous/store/request_policy.hpp"

#include <future>
#include <string>
#include <vector>

#include "rendezvous/store/client.hpp"
#include "rendezvous/store/session.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/served_store.hpp"
#include "tests/support/store_requests.hpp"

using namespace mgpu::rendezvous::store;
namespace request = mgpu::tests::request;

namespace {

// Whether a new client may make the request.
bool accepts(const RequestPolicy& policy, Memory& memory, const std::string& bytes) {
  Session session(1, &policy);
  SessionOutput output;
  return session.receive(request::validate(), memory, output) &&
         session.receive(bytes, memory, output);
}

}  // namespace

TEST_CASE("clients of a read-only store can read it", "[store][policy]") {
  Memory memory;
  CHECK(memory.set("/k", "v").empty());
  const auto bytes = GENERATE(values<std::string>({
      request::ping(1),
      request::get("/k"),
      request::of_keys(Opcode::multi_get, {"/k", "/no"}),
      request::of_keys(Opcode::check, {"/k"}),
      request::wait({"/k"}),
      request::wait({"/later"}) + request::opcode(Opcode::cancel_wait),
      request::opcode(Opcode::num_keys),
      request::opcode(Opcode::list_keys),
      request::of_key(Opcode::queue_length, "/k"),
  }));
  CAPTURE(name_of(static_cast<Opcode>(bytes[0])));
  CHECK(accepts({.read_only = true}, memory, bytes));
}

TEST_CASE("clients of a read-only store cannot change it", "[store][policy]") {
  Memory memory;
  CHECK(memory.set("/k", "1").empty());
  CHECK(memory.push("/q", "queued").empty());
  const auto bytes = GENERATE(values<std::string>({
      request::set("/k", "2"),
      request::set("/new", "2"),
      request::compare_set("/k", "1", "2"),
      request::of_pair(Opcode::append, "/k", "2"),
      request::multi_set({{"/k", "2"}}),
      request::add("/k", 1),
      request::of_key(Opcode::delete_key, "/k"),
      request::barrier("/k", 1),
      request::of_pair(Opcode::queue_push, "/q", "2"),
      request::of_key(Opcode::queue_pop, "/q"),
  }));
  CAPTURE(name_of(static_cast<Opcode>(bytes[0])));
  const auto before = memory.bytes();
  CHECK_FALSE(accepts({.read_only = true}, memory, bytes));
  CHECK(*memory.get("/k") == "1");
  CHECK(memory.keys() == 1);
  CHECK(memory.queue_length("/q") == 1);
  CHECK(memory.bytes() == before);
  CHECK(accepts({}, memory, bytes));  // by default everything is permitted
}

TEST_CASE("clients of a read-only store can add to its counters and not set them",
          "[store][policy]") {
  Memory memory;
  const RequestPolicy policy{.read_only = true, .counters = {"init/"}};
  CHECK(accepts(policy, memory, request::add("init/", 1)));
  CHECK(accepts(policy, memory, request::add("init/", 1)));
  CHECK(*memory.get("init/") == "2");
  CHECK_FALSE(accepts(policy, memory, request::set("init/", "x")));
  CHECK_FALSE(accepts(policy, memory, request::add("/init/", 1)));
  CHECK(memory.keys() == 1);
}

TEST_CASE("a request that is too long is rejected before all of it has arrived",
          "[store][policy]") {
  const RequestPolicy policy{.max_request_bytes = 100};
  Memory memory;
  SessionOutput output;
  const auto large = request::set("/k", std::string(1000, 'x'));

  SECTION("in pieces") {
    Session session(1, &policy);
    REQUIRE(session.receive(request::validate(), memory, output));
    CHECK(session.receive(large.substr(0, 100), memory, output));
    CHECK_FALSE(session.receive(large.substr(100, 1), memory, output));
  }
  SECTION("at once") {
    CHECK_FALSE(accepts(policy, memory, large));
  }
  SECTION("but several short requests may arrive together") {
    std::string many;
    for (int i = 0; i < 100; ++i) many += request::set("/k", "v");
    CHECK(accepts(policy, memory, many));
  }
  CHECK(memory.bytes() < 100);
}

TEST_CASE("only the owner of a read-only store can set a value", "[store][policy]") {
  mgpu::tests::ServedStore store({.policy = {.read_only = true}});
  // A client that already waits for the key gets it too.
  auto value = std::async(std::launch::async, [port = store.port()] {
    return StoreClient("127.0.0.1", port).get("k");
  });
  store.in_loop([](auto& server) { server.set("/k", "v"); });
  CHECK(value.get() == "v");

  StoreClient attacker("127.0.0.1", store.port());
  attacker.set("k", "evil");
  CHECK_THROWS_AS(attacker.get_now("k"), StoreError);
  StoreClient reader("127.0.0.1", store.port());
  CHECK(reader.get_now("k") == "v");
}
