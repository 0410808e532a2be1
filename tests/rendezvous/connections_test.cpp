#include "tests/rendezvous/connections_support.hpp"

#include "rendezvous/auth.hpp"

using namespace mgpu::tests;

TEST_CASE("an agent that proves itself has joined and is heard", "[hub]") {
  Room room;
  Visitor agent(room);
  CHECK(room.joined.empty());
  agent.join();
  CHECK(room.joined.size() == 1);
  CHECK(agent.welcome.session != 0);
  CHECK(agent.welcome.keep_alive == std::chrono::nanoseconds(5s).count());
  CHECK(agent.welcome.heartbeat_interval <= agent.welcome.keep_alive / 8);

  agent.send(Notice{"hello"});
  REQUIRE(room.until([&] { return !room.messages.empty(); }));
  CHECK(room.messages[0].first == agent.id);
  CHECK(std::get<Notice>(room.messages[0].second).text == "hello");
  room.hub->send(agent.id, Notice{"and you"});
  REQUIRE(room.until([&] { return agent.read(), !agent.heard.empty(); }));
  const auto facts = room.hub->facts(agent.id);
  CHECK(facts.address == "127.0.0.1");
  CHECK(facts.our_address == "127.0.0.1");
  CHECK(facts.purpose == "agent");
}

TEST_CASE("bytes that came before the hub had the connection count", "[hub]") {
  Room room;
  AgentChannel talk({.secret = "secret"}, "job", "agent", "x");
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const UniqueFd ours(ends[0]);
  room.hub->adopt(UniqueFd(ends[1]), talk.output());
  char bytes[4096];
  const auto got = ::recv(ours.get(), bytes, sizeof bytes, 0);
  REQUIRE(got > 0);
  std::vector<AuthenticatedChannel::Heard> heard;
  talk.receive({bytes, static_cast<std::size_t>(got)}, heard);
  CHECK(talk.is_open());
}

TEST_CASE("how an agent went is told", "[hub]") {
  Room room;
  Visitor agent(room);
  agent.join();
  SECTION("its process is over") {
    agent.close();
    REQUIRE(room.until([&] { return !room.gone.empty(); }));
    CHECK(room.gone == Gone{{agent.id, Connections::Parting::ended}});
  }
  SECTION("its connection broke") {
    agent.reset();
    REQUIRE(room.until([&] { return !room.gone.empty(); }));
    CHECK(room.gone == Gone{{agent.id, Connections::Parting::broken}});
  }
  SECTION("it says what nobody understands") {
    agent.say(std::string("\0\0\0\0", 4));
    REQUIRE(room.until([&] { return !room.gone.empty(); }));
    CHECK(room.gone == Gone{{agent.id, Connections::Parting::broken}});
    REQUIRE(room.turned_away.size() == 1);
    CHECK(room.turned_away[0] ==
          "rejected a connection from 127.0.0.1: a frame without an authentication code");
  }
  SECTION("nothing comes of it") {
    const auto now = steady_now();
    room.hub->tick(now);
    CHECK(room.gone.empty());
    room.hub->tick(now + 2s);
    room.hub->tick(now + 4s);
    room.hub->tick(now + 4900ms);
    CHECK(room.gone.empty());
    room.hub->tick(now + 5100ms);
    CHECK(room.gone == Gone{{agent.id, Connections::Parting::silent}});
    CHECK(room.hub->peers() == 0);
  }
  room.hub->send(agent.id, Notice{"to nobody"});
  room.hub->close(agent.id);
  CHECK(room.gone.size() == 1);
}

TEST_CASE("nobody is silent because the hub itself has slept", "[hub]") {
  Room room({.keep_alive = 400ms});
  Visitor agent(room);
  agent.join();
  const auto now = steady_now();
  room.hub->tick(now);
  room.hub->tick(now + 10s);
  CHECK(room.gone.empty());
  SECTION("before it had the time to be heard again") {
    // Its signs come every eighth of the keep-alive; ours could not be taken while we slept.
    room.hub->tick(now + 10s + 20ms);
    room.hub->tick(now + 10s + 40ms);
    CHECK(room.gone.empty());
  }
  SECTION("but then it is") {
    for (int i = 1; i <= 10; ++i) room.hub->tick(now + 10s + i * 20ms);
    CHECK(room.gone == Gone{{agent.id, Connections::Parting::silent}});
  }
}

TEST_CASE("signs of life go to and fro as datagrams", "[hub]") {
  Room room;
  Visitor agent(room);
  agent.join();
  const auto before = room.hub->facts(agent.id).last_heard;
  agent.send_datagram(agent.next_beat());
  REQUIRE(room.until([&] { return agent.hear_beat(); }));  // the first is answered at once
  CHECK(room.hub->facts(agent.id).last_heard > before);
  CHECK(agent.pulse.offset());
  CHECK(std::chrono::abs(*agent.pulse.offset()) < 1s);

  SECTION("and the next ones when they are due") {
    agent.send_datagram(agent.next_beat());
    room.hub->tick(steady_now());
    CHECK_FALSE(agent.hear_beat());
    room.hub->tick(steady_now() + Nanoseconds(agent.welcome.heartbeat_interval));
    CHECK(room.until([&] { return agent.hear_beat(); }));
  }
  SECTION("or over the connection, where they are answered there") {
    agent.talk.send(agent.pulse.next(agent.welcome.session, steady_now()));
    agent.write();
    REQUIRE(room.until([&] { return agent.read(), !agent.heard.empty(); }));
    CHECK(std::holds_alternative<Heartbeat>(agent.heard[0]));
  }
}

TEST_CASE("datagrams of strangers change nothing", "[hub]") {
  Room room;
  Visitor agent(room), other(room);
  agent.join();
  const auto agents = agent.welcome;
  other.join();
  agent.send_datagram(agent.next_beat());
  REQUIRE(room.until([&] { return agent.hear_beat(); }));
  const auto heard_at = room.hub->facts(agent.id).last_heard;

  const Heartbeat later{.session = agents.session, .number = 100, .sent = 1};
  const std::string good = encode(later, agent.talk.key_out());
  other.send_datagram("");
  other.send_datagram("hello");
  other.send_datagram(std::string(60'000, 'x'));
  other.send_datagram(good.substr(0, good.size() - 1));
  other.send_datagram(good + 'x');
  other.send_datagram(encode(later, "guess"));
  other.send_datagram(encode(later, other.talk.key_out()));  // in another's name
  other.send_datagram(encode(later, agent.talk.key_in()));   // ours, given back
  other.send_datagram(encode(Heartbeat{.session = 12345, .number = 1}, agent.talk.key_out()));
  // The hub takes them in order: when this one is answered they have all been looked at.
  other.send_datagram(other.next_beat());
  REQUIRE(room.until([&] { return other.hear_beat(); }));
  CHECK(room.hub->facts(agent.id).last_heard == heard_at);
  CHECK(room.gone.empty());

  SECTION("and a replayed one turns no answers to who replays it") {
    const std::string beat = agent.next_beat();
    agent.send_datagram(beat);
    REQUIRE(room.until([&] { return room.hub->facts(agent.id).last_heard > heard_at; }));
    other.send_datagram(beat);
    other.send_datagram(other.next_beat());
    room.until([&] { return !other.hear_beat(); });
    room.hub->tick(steady_now() + Nanoseconds(agents.heartbeat_interval));
    CHECK(room.until([&] { return agent.hear_beat(); }));
  }
}

TEST_CASE("what is written slowly arrives whole", "[hub]") {
  Room room;
  Visitor agent(room, 4096);
  agent.join();
  const std::string text(3'000'000, 'x');
  room.hub->send(agent.id, Notice{text});
  REQUIRE(room.until([&] { return agent.read(), !agent.heard.empty(); }));
  CHECK(std::get<Notice>(std::get<Message>(agent.heard[0])).text == text);
}

TEST_CASE("closing lets the peer read the last words", "[hub]") {
  Room room;
  Visitor agent(room, 4096);
  agent.join();
  room.hub->send(agent.id, Notice{std::string(500'000, 'x')});
  room.hub->send(agent.id, End{.status = 7});
  room.hub->close(agent.id);
  room.hub->send(agent.id, Notice{"too late"});
  agent.send(Notice{"I still talk"});
  REQUIRE(room.until([&] { return agent.read(), agent.ended; }));
  REQUIRE(agent.heard.size() == 2);
  CHECK(std::get<End>(std::get<Message>(agent.heard[1])).status == 7);
  CHECK(room.messages.empty());
  CHECK(room.hub->peers() == 1);  // it may not have read them yet, as far as the hub knows
  SECTION("until it goes") {
    agent.close();
    CHECK(room.until([&] { return room.hub->peers() == 0; }));
  }
  SECTION("or has had the time") {
    room.hub->tick(steady_now() + 3s);
    CHECK(room.hub->peers() == 0);
  }
  CHECK(room.gone.empty());
}

TEST_CASE("a peer that is closed by what it says is not heard further", "[hub]") {
  Room room;
  Visitor agent(room);
  agent.join();
  room.on_message = [&](Connections::PeerId peer) { room.hub->close(peer); };
  agent.talk.send(Leave{.why = "enough"});
  agent.talk.send(Notice{"and one more thing"});
  agent.write();
  REQUIRE(room.until([&] { return agent.read(), agent.ended; }));
  CHECK(room.messages.size() == 1);
}

TEST_CASE("addresses are shown as people write them", "[hub]") {
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
