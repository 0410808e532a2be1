#include <algorithm>
#include <memory>
#include <string>

#include "rendezvous/resolver.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;
namespace asio = boost::asio;

TEST_CASE("a numeric address is returned at once", "[etcd]") {
  asio::io_context io;
  Resolver resolver(io);
  int calls = 0;
  for (const std::string address : {"127.0.0.1", "::1"})
    resolver.resolve(address, [&](const auto& found, const auto& problem) {
      CHECK(problem.empty());
      REQUIRE(found.size() == 1);
      CHECK(found[0].to_string() == address);
      ++calls;
    });
  CHECK(calls == 2);
}

TEST_CASE("concurrent requests for a name share one lookup", "[etcd]") {
  asio::io_context io;
  Resolver resolver(io);
  int calls = 0;
  for (int i = 0; i < 3; ++i)
    resolver.resolve("localhost", [&](const auto& found, const auto& problem) {
      CHECK(problem.empty());
      CHECK(std::ranges::all_of(found, [](const auto& address) { return address.is_loopback(); }));
      CHECK_FALSE(found.empty());
      ++calls;
    });
  CHECK(calls == 0);
  io.run();
  CHECK(calls == 3);
  resolver.resolve("localhost", [&](const auto&, const auto&) { ++calls; });
  CHECK(calls == 4);  // it is cached now
  resolver.forget("localhost");
  resolver.resolve("localhost", [&](const auto&, const auto&) { ++calls; });
  CHECK(calls == 4);
}

TEST_CASE("a name that does not resolve reports the reason", "[etcd]") {
  asio::io_context io;
  Resolver resolver(io);
  std::string why;
  resolver.resolve("not a name", [&](const auto& found, const auto& problem) {
    CHECK(found.empty());
    why = problem;
  });
  io.run();
  CHECK_FALSE(why.empty());
}

TEST_CASE("a destroyed resolver calls no callback and waits for nothing", "[etcd]") {
  asio::io_context io;
  auto resolver = std::make_unique<Resolver>(io);
  resolver->resolve("localhost", [](const auto&, const auto&) { FAIL("it was told"); });
  SECTION("before the result arrives") {
    resolver.reset();
    io.run();
  }
  SECTION("in the first callback") {
    resolver = std::make_unique<Resolver>(io);
    int calls = 0;
    resolver->resolve("localhost", [&](const auto&, const auto&) {
      ++calls;
      resolver.reset();
    });
    io.run();
    CHECK(calls == 1);
  }
}
