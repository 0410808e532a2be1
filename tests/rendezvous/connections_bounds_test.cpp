// What strangers and peers may cost the leader.

#include "rendezvous/rate_limit.hpp"
#include "tests/rendezvous/connections_support.hpp"

using namespace mgpu::tests;

TEST_CASE("whoever does not introduce himself in time is turned away", "[hub]") {
  Room room;
  Visitor silent(room), slow(room), agent(room);
  slow.say(kPreamble.substr(0, 3));
  agent.join();
  const auto now = steady_now();
  room.hub->tick(now);
  CHECK(room.hub->peers() == 3);
  room.hub->tick(now + 2s);
  room.hub->tick(now + 4s);
  agent.send_datagram(agent.next_beat());
  for (auto at = 5s; at <= 11s; at += 1s) room.hub->tick(now + at);
  CHECK(room.turned_away.size() == 2);
  CHECK_THAT(room.turned_away.at(0), Contains("did not complete the handshake in time"));
  CHECK(room.until([&] { return silent.read(), slow.read(), silent.ended && slow.ended; }));
  SECTION("and let go of although he does not go") {
    room.hub->tick(steady_now() + 10s);
    CHECK(room.hub->peers() <= 1);
  }
}

TEST_CASE("of a crowd of strangers the oldest goes, and no member", "[hub]") {
  Room room({.most_strangers = 3});
  Visitor agent(room);
  agent.join();
  std::vector<std::unique_ptr<Visitor>> crowd;
  for (int i = 0; i < 5; ++i) crowd.push_back(std::make_unique<Visitor>(room));
  CHECK(room.hub->peers() == 4);
  CHECK(room.until([&] {
    for (auto& stranger : crowd) stranger->read();
    return crowd[0]->ended && crowd[1]->ended;
  }));
  CHECK_FALSE(crowd[2]->ended);
  crowd[4]->join();
  CHECK(room.joined.size() == 2);
  CHECK(room.gone.empty());
}

TEST_CASE("strangers are told nothing and are no peers to send to", "[hub]") {
  Room room;
  Visitor stranger(room);
  room.hub->send(1, Notice{"secret plans"});
  stranger.say("GET / HTTP/1.1\r\n\r\n");
  REQUIRE(room.until([&] { return !room.turned_away.empty(); }));
  CHECK(room.turned_away[0] ==
        "rejected a connection from 127.0.0.1: it does not speak the mgpu-run protocol");
  CHECK(room.joined.empty());
  CHECK(room.gone.empty());
}

TEST_CASE("a peer that does not read is let go of before it costs memory", "[hub]") {
  Room room({.most_unsent = 1 << 20});
  Visitor agent(room, 4096);
  agent.join();
  const Notice notice{std::string(100'000, 'x')};
  int sent = 0;
  for (; sent < 2000 && room.gone.empty(); ++sent) room.hub->send(agent.id, notice);
  CHECK(room.gone == Gone{{agent.id, Connections::Parting::broken}});
  CHECK(sent < 2000);
  room.hub->poll();
  CHECK(room.hub->peers() == 0);
}

TEST_CASE("a peer that floods is told so and turned away, the others live on", "[hub]") {
  // So little a second that a slow build is no slower.
  Room room({.messages = RateLimit(1, 1000), .bytes = RateLimit(1 << 16, 4 << 20)});
  Visitor flood(room), agent(room);
  flood.join();
  agent.join();
  SECTION("with messages") {
    for (int i = 0; i < 1500; ++i) flood.talk.send(Notice{"more"});
  }
  SECTION("with bytes") {
    for (int i = 0; i < 4; ++i) flood.talk.send(Notice{std::string(3 << 20, 'x')});
  }
  REQUIRE(room.until([&] { return flood.write_some(), flood.read(), flood.ended; }));
  CHECK_THAT(room.turned_away.at(0), Contains("more than 1 messages or 0.0625 MiB per second"));
  CHECK(room.gone == Gone{{flood.id, Connections::Parting::broken}});
  CHECK_THAT(std::get<Refusal>(std::get<Message>(flood.heard.back())).why, Contains("0.0625 MiB"));
  agent.send(Notice{"I am well"});
  CHECK(
      room.until([&] { return !room.messages.empty() && room.messages.back().first == agent.id; }));
}

TEST_CASE("an allowance is saved up to its most and no further", "[hub]") {
  RateLimit allowance(10, 20);
  auto now = steady_now();
  CHECK(allowance.take(20, now));
  CHECK_FALSE(allowance.take(1, now));
  CHECK_FALSE(allowance.take(6, now += 500ms));
  CHECK(allowance.take(5, now));
  CHECK_FALSE(allowance.take(21, now += 1h));
  CHECK(allowance.take(20, now));
  CHECK_FALSE(allowance.take(1, now - 1s));
}
