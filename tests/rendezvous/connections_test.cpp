#include "tests/rendezvous/connections_support.hpp"

#include "rendezvous/auth.hpp"

using namespace mgpu::tests;

TEST_CASE("an agent that authenticates joins, and its messages arrive", "[connections]") {
  Harness harness;
  FakeAgent agent(harness);
  CHECK(harness.joined.empty());
  agent.join();
  CHECK(harness.joined.size() == 1);
  CHECK(agent.welcome.session != 0);
  CHECK(agent.welcome.keep_alive == std::chrono::nanoseconds(5s).count());
  CHECK(agent.welcome.heartbeat_interval <= agent.welcome.keep_alive / 8);

  agent.send(Notice{"hello"});
  REQUIRE(harness.until([&] { return !harness.messages.empty(); }));
  CHECK(harness.messages[0].first == agent.id);
  CHECK(std::get<Notice>(harness.messages[0].second).text == "hello");
  harness.connections->send(agent.id, Notice{"and you"});
  REQUIRE(harness.until([&] { return agent.read(), !agent.received.empty(); }));
  const auto facts = harness.connections->facts(agent.id);
  CHECK(facts.address == "127.0.0.1");
  CHECK(facts.local_address == "127.0.0.1");
  CHECK(facts.purpose == "agent");
}

TEST_CASE("bytes received before adopt() are processed", "[connections]") {
  Harness harness;
  AgentChannel channel({.secret = "secret"}, "job", "agent", "x");
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const UniqueFd ours(ends[0]);
  harness.connections->adopt(UniqueFd(ends[1]), channel.output());
  char bytes[4096];
  const auto got = ::recv(ours.get(), bytes, sizeof bytes, 0);
  REQUIRE(got > 0);
  std::vector<AuthenticatedChannel::Received> received;
  channel.receive({bytes, static_cast<std::size_t>(got)}, received);
  CHECK(channel.is_open());
}

TEST_CASE("the reason why an agent disconnected is reported", "[connections]") {
  Harness harness;
  FakeAgent agent(harness);
  agent.join();
  SECTION("its process exited") {
    agent.close();
    REQUIRE(harness.until([&] { return !harness.gone.empty(); }));
    CHECK(harness.gone == Gone{{agent.id, Connections::CloseReason::closed}});
  }
  SECTION("its connection broke") {
    agent.reset();
    REQUIRE(harness.until([&] { return !harness.gone.empty(); }));
    CHECK(harness.gone == Gone{{agent.id, Connections::CloseReason::broken}});
  }
  SECTION("it violates the protocol") {
    agent.send_bytes(std::string("\0\0\0\0", 4));
    REQUIRE(harness.until([&] { return !harness.gone.empty(); }));
    CHECK(harness.gone == Gone{{agent.id, Connections::CloseReason::broken}});
    REQUIRE(harness.rejected.size() == 1);
    CHECK(harness.rejected[0] ==
          "rejected a connection from 127.0.0.1: a frame without an authentication code");
  }
  SECTION("it is silent") {
    const auto now = boot_now();
    harness.connections->tick(now);
    CHECK(harness.gone.empty());
    harness.connections->tick(now + 2s);
    harness.connections->tick(now + 4s);
    harness.connections->tick(now + 4900ms);
    CHECK(harness.gone.empty());
    harness.connections->tick(now + 5100ms);
    CHECK(harness.gone == Gone{{agent.id, Connections::CloseReason::silent}});
    CHECK(harness.connections->peers() == 0);
  }
  harness.connections->send(agent.id, Notice{"to nobody"});
  harness.connections->close(agent.id);
  CHECK(harness.gone.size() == 1);
}

TEST_CASE("no peer counts as silent because the leader itself slept", "[connections]") {
  Harness harness({.keep_alive = 400ms});
  FakeAgent agent(harness);
  agent.join();
  const auto now = boot_now();
  harness.connections->tick(now);
  harness.connections->tick(now + 10s);
  CHECK(harness.gone.empty());
  SECTION("before it had time to send again") {
    // It sends a heartbeat every eighth of the keep-alive.
    harness.connections->tick(now + 10s + 20ms);
    harness.connections->tick(now + 10s + 40ms);
    CHECK(harness.gone.empty());
  }
  SECTION("but it does afterwards") {
    for (int i = 1; i <= 10; ++i) harness.connections->tick(now + 10s + i * 20ms);
    CHECK(harness.gone == Gone{{agent.id, Connections::CloseReason::silent}});
  }
}

TEST_CASE("a peer of which no heartbeats are expected is not lost, until they are again",
          "[connections]") {
  Harness harness({.keep_alive = 400ms});
  FakeAgent agent(harness);
  agent.join();
  harness.connections->expect_heartbeats(agent.id, false);
  const auto now = boot_now();
  for (int i = 0; i <= 100; ++i) harness.connections->tick(now + i * 20ms);
  CHECK(harness.gone.empty());
  harness.connections->expect_heartbeats(agent.id, true);
  const auto expected_since = boot_now();
  auto at = std::max(now + 2s, expected_since);
  while (harness.gone.empty() && at < expected_since + 10s) harness.connections->tick(at += 20ms);
  CHECK(harness.gone == Gone{{agent.id, Connections::CloseReason::silent}});
  CHECK(at > expected_since + 400ms);
}

TEST_CASE("heartbeats are exchanged as datagrams", "[connections]") {
  Harness harness;
  FakeAgent agent(harness);
  agent.join();
  const auto before = harness.connections->facts(agent.id).last_heartbeat;
  agent.send_datagram(agent.next_heartbeat());
  REQUIRE(harness.until(
      [&] { return agent.receive_heartbeat(); }));  // the first one is answered at once
  CHECK(harness.connections->facts(agent.id).last_heartbeat > before);
  CHECK(agent.heartbeats.offset());
  CHECK(std::chrono::abs(*agent.heartbeats.offset()) < 1s);

  SECTION("and later ones when they are due") {
    agent.send_datagram(agent.next_heartbeat());
    harness.connections->tick(boot_now());
    CHECK_FALSE(agent.receive_heartbeat());
    harness.connections->tick(boot_now() + Nanoseconds(agent.welcome.heartbeat_interval));
    CHECK(harness.until([&] { return agent.receive_heartbeat(); }));
  }
  SECTION("or over the connection, and answered there") {
    agent.channel.send(agent.heartbeats.next(agent.welcome.session, boot_now()));
    agent.write();
    REQUIRE(harness.until([&] { return agent.read(), !agent.received.empty(); }));
    CHECK(std::holds_alternative<Heartbeat>(agent.received[0]));
  }
}

TEST_CASE("foreign datagrams have no effect", "[connections]") {
  Harness harness;
  FakeAgent agent(harness), other(harness);
  agent.join();
  const auto agents = agent.welcome;
  other.join();
  agent.send_datagram(agent.next_heartbeat());
  REQUIRE(harness.until([&] { return agent.receive_heartbeat(); }));
  const auto heard_at = harness.connections->facts(agent.id).last_heartbeat;

  const Heartbeat later{.session = agents.session, .number = 100, .sent_at = 1};
  const std::string good = encode(later, agent.channel.key_out());
  other.send_datagram("");
  other.send_datagram("hello");
  other.send_datagram(std::string(60'000, 'x'));
  other.send_datagram(good.substr(0, good.size() - 1));
  other.send_datagram(good + 'x');
  other.send_datagram(encode(later, "guess"));
  other.send_datagram(encode(later, other.channel.key_out()));  // in the name of another agent
  other.send_datagram(encode(later, agent.channel.key_in()));   // our own, reflected
  other.send_datagram(encode(Heartbeat{.session = 12345, .number = 1}, agent.channel.key_out()));
  // Datagrams are handled in order: when this one is answered, all others were handled.
  other.send_datagram(other.next_heartbeat());
  REQUIRE(harness.until([&] { return other.receive_heartbeat(); }));
  CHECK(harness.connections->facts(agent.id).last_heartbeat == heard_at);
  CHECK(harness.gone.empty());

  SECTION("and a replayed one does not redirect the answers") {
    const std::string heartbeat = agent.next_heartbeat();
    agent.send_datagram(heartbeat);
    REQUIRE(harness.until(
        [&] { return harness.connections->facts(agent.id).last_heartbeat > heard_at; }));
    other.send_datagram(heartbeat);
    other.send_datagram(other.next_heartbeat());
    harness.until([&] { return !other.receive_heartbeat(); });
    harness.connections->tick(boot_now() + Nanoseconds(agents.heartbeat_interval));
    CHECK(harness.until([&] { return agent.receive_heartbeat(); }));
  }
}

TEST_CASE("a message that is written slowly arrives complete", "[connections]") {
  Harness harness;
  FakeAgent agent(harness, 4096);
  agent.join();
  const std::string text(3'000'000, 'x');
  harness.connections->send(agent.id, Notice{text});
  REQUIRE(harness.until([&] { return agent.read(), !agent.received.empty(); }));
  CHECK(std::get<Notice>(std::get<Message>(agent.received[0])).text == text);
}

TEST_CASE("a closed peer can still read the last message", "[connections]") {
  Harness harness;
  FakeAgent agent(harness, 4096);
  agent.join();
  harness.connections->send(agent.id, Notice{std::string(500'000, 'x')});
  harness.connections->send(agent.id, End{.status = 7});
  harness.connections->close(agent.id);
  harness.connections->send(agent.id, Notice{"too late"});
  agent.send(Notice{"I still talk"});
  REQUIRE(harness.until([&] { return agent.read(), agent.ended; }));
  REQUIRE(agent.received.size() == 2);
  CHECK(std::get<End>(std::get<Message>(agent.received[1])).status == 7);
  CHECK(harness.messages.empty());
  CHECK(harness.connections->peers() == 1);  // it may not have read the message yet
  SECTION("until it closes") {
    agent.close();
    CHECK(harness.until([&] { return harness.connections->peers() == 0; }));
  }
  SECTION("or the time for that is over") {
    harness.connections->tick(boot_now() + 3s);
    CHECK(harness.connections->peers() == 0);
  }
  CHECK(harness.gone.empty());
}

TEST_CASE("a peer that is closed because of a message gets no further messages through",
          "[connections]") {
  Harness harness;
  FakeAgent agent(harness);
  agent.join();
  harness.on_message = [&](Connections::PeerId peer) { harness.connections->close(peer); };
  agent.channel.send(Leave{.why = "enough"});
  agent.channel.send(Notice{"and one more thing"});
  agent.write();
  REQUIRE(harness.until([&] { return agent.read(), agent.ended; }));
  CHECK(harness.messages.size() == 1);
}

TEST_CASE("addresses are formatted in their usual form", "[connections]") {
  sockaddr_storage address{};
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  v6.sin6_family = AF_INET6;
  ::inet_pton(AF_INET6, "::ffff:10.1.2.3", &v6.sin6_addr);
  CHECK(address_text(address) == "10.1.2.3");
  ::inet_pton(AF_INET6, "2001:db8::1", &v6.sin6_addr);
  CHECK(address_text(address) == "2001:db8::1");
  address = {};
  CHECK(address_text(address).empty());
}
