#include "rendezvous/hub.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "rendezvous/auth.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

const std::string kPreamble = std::string(kTalkMagic) + static_cast<char>(kProtocolVersion);

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A hub whose callbacks are written down, with the listener that the store is in the launcher.
struct Room {
  std::vector<Hub::PeerId> joined;
  std::vector<std::pair<Hub::PeerId, Message>> messages;
  std::vector<std::pair<Hub::PeerId, Hub::Parting>> gone;
  std::vector<std::string> turned_away;
  std::function<void(Hub::PeerId)> on_message;
  UniqueFd listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  int port = 0;
  std::unique_ptr<Hub> hub;

  explicit Room(Hub::Settings settings = {}) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    // A port that is free for datagrams too.
    for (int tries = 0; !hub && tries < 50; ++tries) {
      listener.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      address.sin_port = 0;
      REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
      REQUIRE(::listen(listener.get(), 128) == 0);
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
      port = ntohs(address.sin_port);
      settings.job = "job";
      settings.credentials = {.secret = "secret"};
      settings.port = port;
      try {
        hub = std::make_unique<Hub>(settings, callbacks());
      } catch (const std::exception&) {
        continue;
      }
    }
    REQUIRE(hub);
  }

  Hub::Callbacks callbacks() {
    return {.joined = [this](Hub::PeerId peer) { joined.push_back(peer); },
            .message =
                [this](Hub::PeerId peer, Message&& message) {
                  messages.emplace_back(peer, std::move(message));
                  if (on_message) on_message(peer);
                },
            .gone = [this](Hub::PeerId peer, Hub::Parting how) { gone.emplace_back(peer, how); },
            .turned_away = [this](const std::string& line) { turned_away.push_back(line); }};
  }

  // Polls until the condition holds; false when it does not within 10 s.
  template <class Condition>
  bool until(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      pollfd wanted{hub->fd(), POLLIN, 0};
      if (::poll(&wanted, 1, 2) > 0) hub->poll();
    }
    return true;
  }
};

// An agent without a loop.
class Visitor {
 public:
  explicit Visitor(Room& room, int receive_buffer = 0)
      : room_(room), socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0)
      ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const sockaddr_in address = loopback(room.port);
    REQUIRE(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
            0);
    ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
    room.hub->adopt(
        UniqueFd(::accept4(room.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)),
        "");
  }

  void say(std::string_view bytes) {
    // A hub that has closed already is not our business.
    static_cast<void>(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  void send(const Message& message) {
    talk.send(message);
    write();
  }
  void write() { say(std::exchange(talk.output(), {})); }

  // Reads what is there.
  void read() {
    char bytes[65536];
    ssize_t got = 0;
    while ((got = ::recv(socket_.get(), bytes, sizeof bytes, 0)) > 0) {
      talk.receive({bytes, static_cast<std::size_t>(got)}, heard);
      write();
    }
    ended = ended || got == 0 || (errno != EAGAIN && errno != EINTR);
  }

  // The greeting, up to the leader's welcome.
  void join() {
    write();
    REQUIRE(room_.until([&] {
      read();
      return !heard.empty();
    }));
    welcome = std::get<Welcome>(std::get<Message>(heard.front()));
    heard.clear();
    pulse.begin(steady_now());
    id = room_.joined.back();
  }

  void send_datagram(std::string_view bytes) {
    const sockaddr_in address = loopback(room_.port);
    REQUIRE(::sendto(datagrams_.get(), bytes.data(), bytes.size(), 0,
                     reinterpret_cast<const sockaddr*>(&address),
                     sizeof address) == static_cast<ssize_t>(bytes.size()));
  }
  std::string next_beat() {
    return encode(pulse.next(welcome.session, steady_now()), talk.key_out());
  }
  // A datagram of the hub's that is a sign of life for us; false when none is there.
  bool hear_beat() {
    char bytes[256];
    const auto got = ::recv(datagrams_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0) return false;
    const auto beat = decode_beat({bytes, static_cast<std::size_t>(got)}, talk.key_in());
    return beat && beat->session == welcome.session && pulse.hear(*beat, steady_now());
  }

  void close() { socket_.reset(); }
  void reset() {
    const linger now{1, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    socket_.reset();
  }

  AgentTalk talk{{.secret = "secret"}, "job", "agent", "the leader"};
  std::vector<Talk::Heard> heard;
  Welcome welcome;
  Pulse pulse;
  Hub::PeerId id = 0;
  bool ended = false;

 private:
  Room& room_;
  UniqueFd socket_;
  UniqueFd datagrams_{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

using Gone = std::vector<std::pair<Hub::PeerId, Hub::Parting>>;

}  // namespace

TEST_CASE("an agent that proves itself has joined and is heard", "[hub]") {
  Room room;
  Visitor agent(room);
  CHECK(room.joined.empty());
  agent.join();
  CHECK(room.joined.size() == 1);
  CHECK(agent.welcome.session != 0);
  CHECK(agent.welcome.keep_alive == std::chrono::nanoseconds(5s).count());
  CHECK(agent.welcome.beat_interval <= agent.welcome.keep_alive / 8);

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
  AgentTalk talk({.secret = "secret"}, "job", "agent", "x");
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const UniqueFd ours(ends[0]);
  room.hub->adopt(UniqueFd(ends[1]), talk.output());
  char bytes[4096];
  const auto got = ::recv(ours.get(), bytes, sizeof bytes, 0);
  REQUIRE(got > 0);
  std::vector<Talk::Heard> heard;
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
    CHECK(room.gone == Gone{{agent.id, Hub::Parting::ended}});
  }
  SECTION("its connection broke") {
    agent.reset();
    REQUIRE(room.until([&] { return !room.gone.empty(); }));
    CHECK(room.gone == Gone{{agent.id, Hub::Parting::broken}});
  }
  SECTION("it says what nobody understands") {
    agent.say(std::string("\0\0\0\0", 4));
    REQUIRE(room.until([&] { return !room.gone.empty(); }));
    CHECK(room.gone == Gone{{agent.id, Hub::Parting::broken}});
    REQUIRE(room.turned_away.size() == 1);
    CHECK(room.turned_away[0] == "turned away 127.0.0.1: a frame without a code");
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
    CHECK(room.gone == Gone{{agent.id, Hub::Parting::silent}});
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
    CHECK(room.gone == Gone{{agent.id, Hub::Parting::silent}});
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
    room.hub->tick(steady_now() + Nanoseconds(agent.welcome.beat_interval));
    CHECK(room.until([&] { return agent.hear_beat(); }));
  }
  SECTION("or over the connection, where they are answered there") {
    agent.talk.send(agent.pulse.next(agent.welcome.session, steady_now()));
    agent.write();
    REQUIRE(room.until([&] { return agent.read(), !agent.heard.empty(); }));
    CHECK(std::holds_alternative<Beat>(agent.heard[0]));
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

  const Beat later{.session = agents.session, .number = 100, .sent = 1};
  const std::string good = encode(later, agent.talk.key_out());
  other.send_datagram("");
  other.send_datagram("hello");
  other.send_datagram(std::string(60'000, 'x'));
  other.send_datagram(good.substr(0, good.size() - 1));
  other.send_datagram(good + 'x');
  other.send_datagram(encode(later, "guess"));
  other.send_datagram(encode(later, other.talk.key_out()));  // in another's name
  other.send_datagram(encode(later, agent.talk.key_in()));   // ours, given back
  other.send_datagram(encode(Beat{.session = 12345, .number = 1}, agent.talk.key_out()));
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
    room.hub->tick(steady_now() + Nanoseconds(agents.beat_interval));
    CHECK(room.until([&] { return agent.hear_beat(); }));
  }
}

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
  CHECK_THAT(room.turned_away.at(0), Contains("did not introduce itself in time"));
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
  CHECK(room.turned_away[0] == "turned away 127.0.0.1: it does not speak our protocol");
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
  CHECK(room.gone == Gone{{agent.id, Hub::Parting::broken}});
  CHECK(sent < 2000);
  room.hub->poll();
  CHECK(room.hub->peers() == 0);
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
  room.on_message = [&](Hub::PeerId peer) { room.hub->close(peer); };
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
