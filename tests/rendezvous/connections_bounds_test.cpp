// Limits on what unauthenticated connections and peers can cost the leader.

#include "rendezvous/rate_limit.hpp"
#include "tests/rendezvous/connections_support.hpp"

using namespace mgpu::tests;

TEST_CASE("a connection that does not complete the handshake in time is rejected",
          "[connections]") {
  Harness harness;
  FakeAgent silent(harness), slow(harness), agent(harness);
  slow.send_bytes(kPreamble.substr(0, 3));
  agent.join();
  const auto now = boot_now();
  harness.connections->tick(now);
  CHECK(harness.connections->peers() == 3);
  harness.connections->tick(now + 2s);
  harness.connections->tick(now + 4s);
  agent.send_datagram(agent.next_heartbeat());
  for (auto at = 5s; at <= 11s; at += 1s) harness.connections->tick(now + at);
  CHECK(harness.rejected.size() == 2);
  CHECK_THAT(harness.rejected.at(0), Contains("did not complete the handshake in time"));
  CHECK(harness.until([&] { return silent.read(), slow.read(), silent.ended && slow.ended; }));
  SECTION("and closed even if the peer does not close it") {
    harness.connections->tick(boot_now() + 10s);
    CHECK(harness.connections->peers() <= 1);
  }
}

TEST_CASE("with too many unauthenticated connections the oldest is closed, and no agent",
          "[connections]") {
  Harness harness({.max_pending = 3});
  FakeAgent agent(harness);
  agent.join();
  std::vector<std::unique_ptr<FakeAgent>> crowd;
  for (int i = 0; i < 5; ++i) crowd.push_back(std::make_unique<FakeAgent>(harness));
  CHECK(harness.connections->peers() == 4);
  CHECK(harness.until([&] {
    for (auto& unauthenticated : crowd) unauthenticated->read();
    return crowd[0]->ended && crowd[1]->ended;
  }));
  CHECK_FALSE(crowd[2]->ended);
  crowd[4]->join();
  CHECK(harness.joined.size() == 2);
  CHECK(harness.gone.empty());
}

TEST_CASE("an unauthenticated connection gets no messages", "[connections]") {
  Harness harness;
  FakeAgent unauthenticated(harness);
  harness.connections->send(1, Notice{"secret plans"});
  unauthenticated.send_bytes("GET / HTTP/1.1\r\n\r\n");
  REQUIRE(harness.until([&] { return !harness.rejected.empty(); }));
  CHECK(harness.rejected[0] ==
        "rejected a connection from 127.0.0.1: it does not speak the mgpu-run protocol");
  CHECK(harness.joined.empty());
  CHECK(harness.gone.empty());
}

TEST_CASE("a peer that does not read is dropped before it costs memory", "[connections]") {
  Harness harness({.max_unsent = 1 << 20});
  FakeAgent agent(harness, 4096);
  agent.join();
  const Notice notice{std::string(100'000, 'x')};
  int sent = 0;
  for (; sent < 2000 && harness.gone.empty(); ++sent) harness.connections->send(agent.id, notice);
  CHECK(harness.gone == Gone{{agent.id, Connections::CloseReason::broken}});
  CHECK(sent < 2000);
  harness.connections->serve_ready();
  CHECK(harness.connections->peers() == 0);
}

TEST_CASE("a flooding peer is rejected with a message, and the others stay connected",
          "[connections]") {
  // Rates so low that even a slow build exceeds them.
  Harness harness({.messages = RateLimit(1, 1000), .bytes = RateLimit(1 << 16, 4 << 20)});
  FakeAgent flood(harness), agent(harness);
  flood.join();
  agent.join();
  SECTION("with messages") {
    for (int i = 0; i < 1500; ++i) flood.channel.send(Notice{"more"});
  }
  SECTION("with bytes") {
    for (int i = 0; i < 4; ++i) flood.channel.send(Notice{std::string(3 << 20, 'x')});
  }
  REQUIRE(harness.until([&] { return flood.write_some(), flood.read(), flood.ended; }));
  CHECK_THAT(harness.rejected.at(0), Contains("more than 1 messages or 0.0625 MiB per second"));
  CHECK(harness.gone == Gone{{flood.id, Connections::CloseReason::broken}});
  CHECK_THAT(std::get<Refusal>(std::get<Message>(flood.received.back())).why,
             Contains("0.0625 MiB"));
  agent.send(Notice{"I am well"});
  CHECK(harness.until(
      [&] { return !harness.messages.empty() && harness.messages.back().first == agent.id; }));
}

TEST_CASE("a rate limit accumulates up to its burst and no further", "[connections]") {
  RateLimit allowance(10, 20);
  auto now = boot_now();
  CHECK(allowance.take(20, now));
  CHECK_FALSE(allowance.take(1, now));
  CHECK_FALSE(allowance.take(6, now += 500ms));
  CHECK(allowance.take(5, now));
  CHECK_FALSE(allowance.take(21, now += 1h));
  CHECK(allowance.take(20, now));
  CHECK_FALSE(allowance.take(1, now - 1s));
}
