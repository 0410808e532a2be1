#include "rendezvous/store/background_server.hpp"

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>

#include "rendezvous/store/client.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous::store;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST_CASE("a store in the background serves clients of other threads", "[store][background]") {
  BackgroundServer server({});
  StoreClient one("127.0.0.1", server.port(), 20s);
  auto value = std::async(std::launch::async,
                          [&] { return StoreClient("127.0.0.1", server.port(), 20s).get("key"); });
  one.set("key", "text");
  CHECK(value.get() == "text");
}

TEST_CASE("a store in the background ends with its last client", "[store][background]") {
  auto server = std::make_unique<BackgroundServer>(ServerOptions{});
  auto client = std::make_unique<StoreClient>("127.0.0.1", server->port(), 20s);
  auto ended = std::async(std::launch::async, [&] { server.reset(); });
  CHECK(ended.wait_for(200ms) == std::future_status::timeout);
  client->set("late", "1");
  CHECK(client->get("late") == "1");
  client.reset();
  CHECK(ended.wait_for(5s) == std::future_status::ready);
}

TEST_CASE("a store in the background does not delay the report of an error",
          "[store][background]") {
  std::unique_ptr<StoreClient> client;
  const auto start = Clock::now();
  try {
    BackgroundServer server({});
    client = std::make_unique<StoreClient>("127.0.0.1", server.port(), 20s);
    throw std::runtime_error("the job fails");
  } catch (const std::runtime_error&) {
    CHECK(Clock::now() - start < 5s);
  }
  CHECK_THROWS(client->get_now("key"));
}
