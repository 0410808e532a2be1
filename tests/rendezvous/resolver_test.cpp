#include <algorithm>
#include <memory>
#include <string>

#include "rendezvous/resolver.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;
namespace asio = boost::asio;

TEST_CASE("an address is its own answer, at once", "[etcd]") {
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

TEST_CASE("a name is looked up once for all who ask meanwhile", "[etcd]") {
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
  CHECK(calls == 4);  // it is known now
  resolver.forget("localhost");
  resolver.resolve("localhost", [&](const auto&, const auto&) { ++calls; });
  CHECK(calls == 4);
}

TEST_CASE("a name that cannot be looked up says why", "[etcd]") {
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

TEST_CASE("a resolver that is gone tells nobody, and waits for nothing", "[etcd]") {
  asio::io_context io;
  auto resolver = std::make_unique<Resolver>(io);
  resolver->resolve("localhost", [](const auto&, const auto&) { FAIL("it was told"); });
  SECTION("before the answer can be taken") {
    resolver.reset();
    io.run();
  }
  SECTION("by who is told first") {
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
