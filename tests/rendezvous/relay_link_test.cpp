#include "rendezvous/store/relay_link.hpp"

#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/store_requests.hpp"

using namespace mgpu::rendezvous::store;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Kind = RelayRecord::Kind;
namespace request = mgpu::tests::request;

namespace {

// The agent's end of a link: what it sends, and what the leader has sent, by client.
struct Agent {
  explicit Agent(StoreServer& server) : link(server, [this] { ++wakes; }) {}

  void send(RelayedClient client, Kind kind, std::string_view bytes = {},
            std::uint32_t number = 0) {
    std::string records;
    put_record(records, {.client = client, .kind = kind, .number = number, .bytes = bytes});
    link.receive(records);
    take();
  }
  void open(RelayedClient client) {
    send(client, Kind::open);
    send(client, Kind::data, request::validate());
  }
  void data(RelayedClient client, std::string_view bytes) { send(client, Kind::data, bytes); }

  void take() {
    const std::string records = std::exchange(link.output(), {});
    RelayRecordReader reader(records);
    RelayRecord record;
    while (reader.next(record)) {
      auto& client = clients.at(record.client);
      if (record.kind == Kind::data) client.got += record.bytes;
      if (record.kind == Kind::credit) client.credit += record.number;
      if (record.kind == Kind::close) client.closed = true;
    }
  }

  struct Client {
    std::string got;
    std::size_t credit = 0;
    bool closed = false;
  };
  int wakes = 0;
  RelayLink link;
  std::vector<Client> clients = std::vector<Client>(64);
};

std::string value_reply(std::string_view value) {
  return request::string(value);
}

}  // namespace

TEST_CASE("records survive the way through bytes", "[store][relay]") {
  std::string bytes;
  put_record(bytes, {.client = 0xfffffffe, .kind = Kind::open});
  put_record(bytes, {.client = 7, .kind = Kind::data, .bytes = "abc"});
  put_record(bytes, {.client = 7, .kind = Kind::credit, .number = 70000});
  put_record(bytes, {.client = 7, .kind = Kind::close});
  RelayRecordReader reader(bytes);
  RelayRecord record;
  REQUIRE(reader.next(record));
  CHECK((record.client == 0xfffffffe && record.kind == Kind::open));
  REQUIRE(reader.next(record));
  CHECK((record.client == 7 && record.kind == Kind::data && record.bytes == "abc"));
  REQUIRE(reader.next(record));
  CHECK((record.kind == Kind::credit && record.number == 70000));
  REQUIRE(reader.next(record));
  CHECK(record.kind == Kind::close);
  CHECK_FALSE(reader.next(record));

  for (std::size_t cut = 1; cut < 9; ++cut) {
    RelayRecordReader broken(std::string_view(bytes).substr(0, cut));
    CHECK_THROWS_AS(broken.next(record), RelayError);
  }
  RelayRecordReader short_data(std::string_view(bytes).substr(9, 11));
  CHECK_THROWS_AS(short_data.next(record), RelayError);
  bytes[4] = 9;
  RelayRecordReader unknown(bytes);
  CHECK_THROWS_WITH(unknown.next(record), Contains("unknown kind"));
}

TEST_CASE("a message holds whole records", "[store][relay]") {
  std::string bytes;
  const std::string value(400 << 10, 'x');
  for (int i = 0; i < 5; ++i) put_record(bytes, {.client = 1, .kind = Kind::data, .bytes = value});
  std::string_view rest = bytes;
  std::vector<std::size_t> sizes;
  while (!rest.empty()) {
    const auto part = records_for_message(rest);
    REQUIRE_FALSE(part.empty());
    RelayRecordReader reader(part);
    RelayRecord record;
    while (reader.next(record)) CHECK(record.bytes.size() == value.size());
    sizes.push_back(part.size());
    rest.remove_prefix(part.size());
  }
  CHECK(sizes.size() == 3);
}

TEST_CASE("clients on other nodes and local ones share the store", "[store][relay]") {
  StoreServer server({});
  Agent one(server), two(server);
  one.open(1);
  two.open(1);
  one.data(1, request::set("/k", "value"));
  two.data(1, request::get("/k"));
  CHECK(two.clients[1].got == value_reply("value"));

  two.data(1, request::wait({"/later"}));
  CHECK(two.clients[1].got == value_reply("value"));
  const int wakes = two.wakes;
  one.data(1, request::set("/later", ""));
  CHECK(two.wakes == wakes + 1);  // its owner learns that there is something to send
  two.take();
  CHECK(two.clients[1].got == value_reply("value") + request::kStop);
  CHECK(server.statistics().relayed == 2);

  SECTION("a client that violates the protocol is closed, the others are not") {
    one.open(2);
    one.data(2, "\xff");
    CHECK(one.clients[2].closed);
    one.data(1, request::get("/k"));
    CHECK(one.clients[1].got == value_reply("value"));
    CHECK(server.statistics().relayed == 2);
  }
  SECTION("a closed client waits for nothing") {
    two.data(1, request::wait({"/never"}));
    two.send(1, Kind::close);
    one.data(1, request::set("/never", ""));
    CHECK(server.statistics().relayed == 1);
  }
  SECTION("a new round closes all of them") {
    server.reset();
    one.take();
    two.take();
    CHECK((one.clients[1].closed && two.clients[1].closed));
    CHECK(server.statistics().connections == 0);
  }
  SECTION("a number is used once") {
    CHECK_THROWS_WITH(one.send(1, Kind::open), Contains("twice"));
  }
}

TEST_CASE("a lost link takes its clients with it", "[store][relay]") {
  StoreServer server({});
  Agent stays(server);
  stays.open(1);
  {
    Agent lost(server);
    lost.open(1);
    lost.open(2);
    lost.data(1, request::wait({"/k"}));
    CHECK(server.statistics().relayed == 3);
  }
  CHECK(server.statistics().relayed == 1);
  stays.data(1, request::set("/k", "v") + request::get("/k"));
  CHECK(stays.clients[1].got == value_reply("v"));
}

TEST_CASE("a client that does not read gets no more than its window", "[store][relay]") {
  StoreServer server({});
  Agent agent(server);
  agent.open(1);
  agent.open(2);
  const std::string value(200'000, 'v');
  const std::string get = request::get("/big");
  agent.data(1, request::set("/big", value));
  for (int i = 0; i < 20; ++i) agent.data(1, get);
  CHECK(agent.clients[1].got.size() == kRelayWindow);
  agent.data(2, get);  // another client is not held up
  CHECK(agent.clients[2].got == value_reply(value));

  std::size_t taken = 0;
  while (agent.clients[1].got.size() < 20 * (value.size() + 8)) {
    const auto more = agent.clients[1].got.size() - taken;
    REQUIRE(more > 0);
    taken += more;
    agent.send(1, Kind::credit, {}, static_cast<std::uint32_t>(more));
  }
  std::string all;
  for (int i = 0; i < 20; ++i) all += value_reply(value);
  CHECK(agent.clients[1].got == all);
  CHECK(server.statistics().unsent == 0);

  SECTION("more credit than the window is a violation") {
    agent.send(1, Kind::credit, {}, kRelayWindow);
    CHECK(agent.clients[1].closed);
  }
}

TEST_CASE("an agent learns how much of a client's bytes was taken", "[store][relay]") {
  StoreServer server({});
  Agent agent(server);
  agent.open(1);
  const std::string bytes = request::set("/big", std::string(3 << 20, 'x'));
  std::size_t sent = request::validate().size(), credit = 0;
  for (std::string_view rest = bytes; !rest.empty();) {
    const auto room = kRelayWindow - (sent - credit);
    REQUIRE(room > 0);
    const auto part = rest.substr(0, std::min<std::size_t>(room, 100'000));
    agent.data(1, part);
    sent += part.size();
    credit = agent.clients[1].credit;
    rest.remove_prefix(part.size());
  }
  CHECK(server.statistics().bytes > 3 << 20);
  CHECK(sent - credit < kRelayWindow / 2);
}

TEST_CASE("an agent that sends more than the window loses the client", "[store][relay]") {
  StoreServer server({});
  Agent agent(server);
  agent.open(1);
  const std::string value(300'000, 'v');
  agent.data(1, request::set("/big", value));
  for (int i = 0; i < 2; ++i) agent.data(1, request::get("/big"));  // behind with its replies
  agent.data(1, std::string(kRelayWindow, 'x'));
  CHECK_FALSE(agent.clients[1].closed);
  agent.data(1, "x");
  CHECK(agent.clients[1].closed);
}
