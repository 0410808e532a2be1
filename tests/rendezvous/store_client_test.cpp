#include "rendezvous/store/client.hpp"

#include <algorithm>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/store/listener.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/served_store.hpp"

using namespace mgpu::rendezvous::store;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using mgpu::tests::ServedStore;
using Keys = std::vector<std::string>;

TEST_CASE("the client supports every operation of the store", "[store][client]") {
  ServedStore store;
  StoreClient client("127.0.0.1", store.port(), 20s);

  client.set("k", std::string("a\0b", 3));
  CHECK(client.get("k") == std::string("a\0b", 3));
  CHECK(client.get_now("none").empty());
  client.append("k", "c");
  CHECK(client.get("k").size() == 4);
  CHECK(client.add("n", 4) == 4);
  CHECK(client.add("n", -5) == -1);
  CHECK(client.compare_set("c", "", "1") == "1");
  CHECK(client.compare_set("c", "2", "3") == "1");
  client.multi_set(std::vector<std::pair<std::string, std::string>>{{"m1", "x"}, {"m2", ""}});
  CHECK(client.multi_get(Keys{"m2", "m1"}) == Keys{"", "x"});
  CHECK(client.check(Keys{"m1", "k"}));
  CHECK_FALSE(client.check(Keys{"m1", "none"}));
  CHECK(client.num_keys() == 5);
  CHECK(client.remove("k"));
  CHECK_FALSE(client.remove("k"));
  auto listed = client.list_keys();
  std::sort(listed.begin(), listed.end());
  CHECK(listed == Keys{"c", "m1", "m2", "n"});
  client.push("q", "1");
  client.push("q", "2");
  CHECK(client.queue_length("q") == 2);
  CHECK(client.pop("q") == "1");
  CHECK(client.try_pop("q") == "2");
  CHECK_FALSE(client.try_pop("q"));
  client.barrier("alone", 1);
}

TEST_CASE("a value of the maximum size is stored and read, and a larger one is rejected",
          "[store][client]") {
  ServedStore store;
  StoreClient client("127.0.0.1", store.port(), 20s);
  const std::string largest(kMaxValueBytes, 'x');
  client.set("k", largest);
  CHECK(client.get("k") == largest);
  client.append("k", largest);
  CHECK(client.get("k").size() == 2 * kMaxValueBytes);

  StoreClient other("127.0.0.1", store.port(), 20s);
  CHECK_THROWS_AS((other.set("k", largest + "x"), other.num_keys()), StoreError);
  CHECK(client.num_keys() == 1);
}

TEST_CASE("clients wait for each other", "[store][client]") {
  ServedStore store;
  StoreClient client("127.0.0.1", store.port(), 20s);
  const auto beside = [&](auto call) {
    return std::async(std::launch::async, [port = store.port(), call] {
      StoreClient other("127.0.0.1", port, 20s);
      return call(other);
    });
  };

  SECTION("for a key") {
    auto other = beside([](StoreClient& c) { return c.get("late"); });
    client.set("late", "v");
    CHECK(other.get() == "v");
  }
  SECTION("for pushed values, one each") {
    auto first = beside([](StoreClient& c) { return c.pop("q"); });
    auto second = beside([](StoreClient& c) { return c.pop("q"); });
    client.push("q", "x");
    client.push("q", "x");
    CHECK(first.get() + second.get() == "xx");
  }
  SECTION("at a barrier") {
    std::vector<std::future<int>> others;
    for (int i = 0; i < 4; ++i)
      others.push_back(beside([](StoreClient& c) { return c.barrier("b", 5), 1; }));
    client.barrier("b", 5);
    for (auto& other : others) CHECK(other.get() == 1);
  }
}

TEST_CASE("a wait that times out leaves the connection usable", "[store][client]") {
  ServedStore store;
  StoreClient client("127.0.0.1", store.port(), 20s);
  CHECK_THROWS_WITH(client.wait(Keys{"never", "x"}, 10ms),
                    Contains("WAIT never did not end within 0.01 s"));
  CHECK_THROWS_AS(client.barrier("b", 2, 10ms), StoreTimeout);
  CHECK_THROWS_AS(client.wait(Keys{"never"}, 0ms), StoreTimeout);
  client.set("never", "");
  client.wait(Keys{"never"}, 10s);
  CHECK(client.add("n", 1) == 1);
}

TEST_CASE("an unreachable store is named in the error", "[store][client]") {
  const auto gone = listen_on_loopback(0).port;
  CHECK_THROWS_WITH(StoreClient("127.0.0.1", gone, 50ms),
                    Contains("cannot connect to store 127.0.0.1:" + std::to_string(gone) +
                             ": Connection refused"));

  SECTION("but one that starts in time is found") {
    auto client = std::async(std::launch::async,
                             [&] { return StoreClient("127.0.0.1", gone, 20s).add("n", 1); });
    ServedStore late({.port = gone});
    CHECK(client.get() == 1);
  }
}

TEST_CASE("a server that does not reply fails at the deadline", "[store][client]") {
  const auto silent = listen_on_loopback(0);
  CHECK_THROWS_WITH(StoreClient("127.0.0.1", silent.port, 50ms),
                    Contains("VALIDATE: no reply in time"));
}

TEST_CASE("a reset deletes all keys, closes all connections and keeps the port",
          "[store][client]") {
  ServedStore store;
  StoreClient before("127.0.0.1", store.port(), 20s);
  before.set("k", "old");
  before.num_keys();
  const int port = store.port();
  store.reset();

  CHECK_THROWS_AS(before.num_keys(), StoreError);
  CHECK_THROWS_WITH(before.num_keys(), Contains("the connection is closed"));
  CHECK(store.statistics().connections == 0);
  StoreClient after("127.0.0.1", port, 20s);
  CHECK(after.num_keys() == 0);
}
