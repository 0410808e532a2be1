// What clients may take of the store. The clients are those of other nodes, which need no sockets.

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/store/relay_link.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/store_requests.hpp"

using namespace mgpu::rendezvous::store;
using namespace std::chrono_literals;
using Kind = RelayRecord::Kind;
namespace request = mgpu::tests::request;

namespace {

class Clients {
 public:
  explicit Clients(ServerOptions options) : server_(std::move(options)), link_(server_, [] {}) {}

  RelayedClient open_silent() {
    const auto client = next_++;
    send({.client = client, .kind = Kind::open});
    return client;
  }
  RelayedClient open() {
    const auto client = open_silent();
    say(client, request::validate());
    return client;
  }
  // Sends in pieces of the window, and takes all replies.
  void say(RelayedClient client, std::string_view bytes) {
    for (; !bytes.empty() && !is_closed(client);
         bytes.remove_prefix(std::min(bytes.size(), kRelayWindow)))
      send({.client = client, .kind = Kind::data, .bytes = bytes.substr(0, kRelayWindow)});
  }
  void leave(RelayedClient client) { send({.client = client, .kind = Kind::close}); }
  bool is_closed(RelayedClient client) const { return closed_.contains(client); }
  bool is_open(RelayedClient client) { return !is_closed(client); }
  StoreServer& server() { return server_; }

 private:
  void send(const RelayRecord& what) {
    std::string records;
    put_record(records, what);
    link_.receive(records);
    const std::string answers = std::exchange(link_.output(), {});
    RelayRecordReader reader(answers);
    RelayRecord record;
    while (reader.next(record))
      if (record.kind == Kind::close) closed_.insert(record.client);
  }

  StoreServer server_;
  RelayLink link_;
  RelayedClient next_ = 0;
  std::set<RelayedClient> closed_;
};

std::string unfinished_multi_set(std::size_t bytes) {
  std::string all = request::opcode(Opcode::multi_set) + request::number<std::int64_t>(1 << 16);
  const std::string value(1 << 20, 'x');
  while (all.size() < bytes) all += request::string("/key") + request::string(value);
  return all;
}

}  // namespace

TEST_CASE("two hundred MiB cannot be parked in the store", "[store][limits]") {
  Clients clients({.max_bytes = 8 << 20});
  const std::string value(1 << 20, 'x');

  SECTION("as values") {
    int refused = 0;
    for (int i = 0; i < 200; ++i) {
      const auto client = clients.open();
      clients.say(client, request::set("/" + std::to_string(i), value));
      refused += clients.is_closed(client);
    }
    CHECK(refused >= 192);
    CHECK(clients.server().statistics().bytes <= 8 << 20);
  }
  SECTION("as queues and appended parts") {
    const auto pusher = clients.open(), appender = clients.open();
    for (int i = 0; i < 5; ++i)
      clients.say(pusher, request::of_pair(Opcode::queue_push, "/q", value));
    CHECK(clients.is_open(pusher));
    for (int i = 0; i < 5; ++i)
      clients.say(appender, request::of_pair(Opcode::append, "/a", value));
    CHECK(clients.is_closed(appender));
  }
  SECTION("as requests that never end") {
    std::vector<RelayedClient> all;
    for (int i = 0; i < 200; ++i) {
      all.push_back(clients.open());
      clients.say(all.back(), unfinished_multi_set(3 << 20));
    }
    const auto open = std::count_if(all.begin(), all.end(),
                                    [&](RelayedClient client) { return clients.is_open(client); });
    CHECK((open >= 1 && open <= 3));
  }
  SECTION("as keys that clients wait for") {
    int refused = 0;
    for (int i = 0; i < 20; ++i) {
      std::string keys = request::opcode(Opcode::wait) + request::number<std::uint64_t>(1000);
      for (int k = 0; k < 1000; ++k)
        keys += request::string("/" + std::to_string(i) + "/" + std::to_string(k) +
                                std::string(1000, 'k'));
      const auto client = clients.open();
      clients.say(client, keys);
      refused += clients.is_closed(client);
    }
    CHECK(refused >= 14);
  }
  SECTION("as many small keys") {
    const auto client = clients.open();
    for (int i = 0; i < 100'000 && clients.is_open(client); ++i)
      clients.say(client, request::set(std::to_string(i), ""));
    CHECK(clients.is_closed(client));
    CHECK(clients.server().statistics().keys > 10'000);
  }
}

TEST_CASE("what a client leaves free can be used again", "[store][limits]") {
  Clients clients({.max_bytes = 8 << 20});
  const std::string value(3 << 20, 'x');
  for (int i = 0; i < 20; ++i) {
    const auto client = clients.open();
    clients.say(client, request::set("/k", value));
    clients.say(client, unfinished_multi_set(1 << 20));
    CHECK(clients.is_open(client));
    clients.leave(client);
  }
  const auto client = clients.open();
  clients.say(client, request::of_key(Opcode::delete_key, "/k"));
  clients.say(client, request::set("/other", std::string(7 << 20, 'x')));
  CHECK(clients.is_open(client));
  clients.server().reset();
  CHECK(clients.server().statistics().bytes == 0);
}

TEST_CASE("one request of a client cannot be endless", "[store][limits]") {
  Clients clients({});
  const auto client = clients.open();
  clients.say(client, unfinished_multi_set(kMaxRequestBytes - (2 << 20)));
  CHECK(clients.is_open(client));
  clients.say(client, unfinished_multi_set(4 << 20).substr(9));
  CHECK(clients.is_closed(client));
}

TEST_CASE("when there are too many connections, idle ones are closed first", "[store][limits]") {
  SECTION("those that have not sent VALIDATE") {
    Clients clients({.max_connections = 3, .idle_timeout = 1h});
    const auto member = clients.open(), silent = clients.open_silent(), last = clients.open();
    CHECK(clients.is_open(clients.open()));
    CHECK(clients.is_closed(silent));
    CHECK((clients.is_open(member) && clients.is_open(last)));
  }
  SECTION("but not those that were used a moment ago") {
    Clients clients({.max_connections = 2, .idle_timeout = 1h});
    const auto first = clients.open(), second = clients.open();
    CHECK(clients.is_closed(clients.open()));
    CHECK((clients.is_open(first) && clients.is_open(second)));
  }
  SECTION("the one that has been idle the longest, unless it waits") {
    Clients clients({.max_connections = 3, .idle_timeout = 0ms});
    const auto waits = clients.open();
    clients.say(waits, request::wait({"/never"}));
    const auto old = clients.open(), busy = clients.open();
    clients.say(old, request::ping(1));
    clients.say(busy, request::ping(1));
    CHECK(clients.is_open(clients.open()));
    CHECK(clients.is_closed(old));
    CHECK((clients.is_open(waits) && clients.is_open(busy)));
  }
}
