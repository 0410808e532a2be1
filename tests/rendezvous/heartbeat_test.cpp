#include "rendezvous/heartbeat.hpp"

#include <cstdlib>
#include <limits>

#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;
using namespace std::chrono_literals;

namespace {

constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();

// Two machines with different clocks; `now` is the time of the first one.
struct Pair {
  HeartbeatTracker here, there;
  Nanoseconds now = 1h;
  Nanoseconds ahead = 5h;  // offset of the other clock

  explicit Pair(Nanoseconds difference = 5h) : ahead(difference) {
    here.begin(now);
    there.begin(now + ahead);
  }
  Heartbeat to_there(Nanoseconds delay) {
    const Heartbeat heartbeat = here.next(1, now);
    now += delay;
    CHECK(there.receive(heartbeat, now + ahead));
    return heartbeat;
  }
  Heartbeat to_here(Nanoseconds delay) {
    const Heartbeat heartbeat = there.next(1, now + ahead);
    now += delay;
    CHECK(here.receive(heartbeat, now));
    return heartbeat;
  }
};

}  // namespace

TEST_CASE("a heartbeat is encoded and decoded unchanged", "[heartbeat]") {
  const Heartbeat heartbeat{
      .session = ~0ULL, .number = 7, .sent_at = -1, .peer_sent_at = kMost, .received_at = kLeast};
  const std::string datagram = encode(heartbeat, "key");
  CHECK(datagram.size() == kHeartbeatBytes);
  CHECK(session_of(datagram) == heartbeat.session);
  const auto read = decode_heartbeat(datagram, "key");
  REQUIRE(read);
  CHECK(read->session == heartbeat.session);
  CHECK(read->number == heartbeat.number);
  CHECK(read->sent_at == heartbeat.sent_at);
  CHECK(read->peer_sent_at == heartbeat.peer_sent_at);
  CHECK(read->received_at == heartbeat.received_at);
}

TEST_CASE("a truncated, longer, changed or differently signed datagram is rejected",
          "[heartbeat]") {
  const std::string datagram = encode(Heartbeat{.session = 3, .number = 1, .sent_at = 5}, "key");
  CHECK_FALSE(decode_heartbeat(datagram, "kez"));
  CHECK_FALSE(decode_heartbeat(datagram, ""));
  CHECK_FALSE(decode_heartbeat(datagram + 'x', "key"));
  CHECK_FALSE(session_of(datagram + 'x'));
  for (std::size_t size = 0; size < datagram.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(session_of(datagram.substr(0, size)));
    CHECK_FALSE(decode_heartbeat(datagram.substr(0, size), "key"));
  }
  for (std::size_t bit = 0; bit < 8 * datagram.size(); ++bit) {
    CAPTURE(bit);
    std::string changed = datagram;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    CHECK_FALSE(decode_heartbeat(changed, "key"));
  }
}

TEST_CASE("a replayed or late heartbeat has no effect", "[heartbeat]") {
  Pair pair;
  const Heartbeat first = pair.here.next(1, pair.now);
  const Heartbeat second = pair.here.next(1, pair.now + 1s);
  CHECK(pair.there.receive(second, 5h));
  CHECK_FALSE(pair.there.receive(second, 6h));
  CHECK_FALSE(pair.there.receive(first, 6h));
  CHECK(pair.there.last_heartbeat() == 5h);
  CHECK(pair.there.next(1, 6h).peer_sent_at == second.sent_at);
}

TEST_CASE("the confirmed time is never later than the time the peer really heard", "[heartbeat]") {
  Pair pair;
  // By our clock: when the last heartbeat that arrived there was sent.
  Nanoseconds confirmed_there = pair.now;
  const auto began = pair.now;
  std::srand(7);
  for (int i = 0; i < 2000; ++i) {
    pair.now += Nanoseconds(std::rand() % 100'000'000);
    const bool lost = std::rand() % 3 == 0;
    if (std::rand() % 2 == 0) {
      const auto sent = pair.now;
      const Heartbeat heartbeat = pair.here.next(1, pair.now);
      if (lost) continue;
      pair.now += Nanoseconds(std::rand() % 200'000'000);
      pair.there.receive(heartbeat, pair.now + pair.ahead);
      confirmed_there = sent;
    } else {
      const Heartbeat heartbeat = pair.there.next(1, pair.now + pair.ahead);
      if (lost) continue;
      pair.now += Nanoseconds(std::rand() % 200'000'000);
      pair.here.receive(heartbeat, pair.now);
    }
    REQUIRE(pair.here.confirmed_until() <= confirmed_there);
    REQUIRE(pair.here.confirmed_until() >= began);
    REQUIRE(pair.here.last_heartbeat() <= pair.now);
  }
  CHECK(pair.here.confirmed_until() > began);
}

TEST_CASE("a heartbeat of a peer that has not heard from us confirms nothing", "[heartbeat]") {
  Pair pair;
  const auto began = pair.now;
  pair.to_here(1s);
  CHECK(pair.here.confirmed_until() == began);
  CHECK(pair.here.last_heartbeat() == pair.now);
  CHECK_FALSE(pair.here.offset());
}

TEST_CASE("the clock offset is exact within half a round trip, however asymmetric the path is",
          "[heartbeat]") {
  const auto ahead = GENERATE(Nanoseconds(5h), Nanoseconds(-30min), Nanoseconds(0));
  const auto [way_there, way_back] = GENERATE(std::pair(10ms, 10ms), std::pair(200ms, 0ms),
                                              std::pair(0ms, 200ms), std::pair(1ms, 150ms));
  CAPTURE(ahead.count(), way_there.count(), way_back.count());
  Pair pair(ahead);
  pair.to_there(way_there);
  pair.now += 3s;  // how long the peer waits does not matter
  pair.to_here(way_back);
  REQUIRE(pair.here.offset());
  CHECK(pair.here.round_trip() == way_there + way_back);
  const auto wrong = *pair.here.offset() - ahead;
  CHECK(std::chrono::abs(wrong) <= (way_there + way_back) / 2);

  SECTION("an exchange with a shorter round trip replaces it") {
    pair.to_there(1us);
    pair.to_here(1us);
    CHECK(std::chrono::abs(*pair.here.offset() - ahead) <= 1us);
  }
  SECTION("one with a longer round trip does not") {
    pair.to_there(3s);
    pair.to_here(0s);
    CHECK(pair.here.round_trip() == way_there + way_back);
    CHECK(*pair.here.offset() - ahead == wrong);
  }
  SECTION("but any newer one replaces an old measurement, because clocks drift") {
    pair.now += 2min;
    pair.to_there(1s);
    pair.to_here(1s);
    CHECK(pair.here.round_trip() == 2s);
  }
}

TEST_CASE("a confirmation of a future time is ignored", "[heartbeat]") {
  Pair pair;
  const auto began = pair.now;
  Heartbeat heartbeat = pair.there.next(1, pair.now + pair.ahead);
  heartbeat.received_at = heartbeat.sent_at;
  heartbeat.peer_sent_at =
      GENERATE_COPY(as<std::int64_t>(), (began + 1ns).count(), kMost, (began + 24h).count());
  CHECK(pair.here.receive(heartbeat, began));
  CHECK(pair.here.confirmed_until() == began);
  CHECK_FALSE(pair.here.offset());
}

TEST_CASE("extreme times do no harm", "[heartbeat]") {
  Pair pair;
  const auto began = pair.now;
  const auto extreme = [] { return GENERATE(as<std::int64_t>(), kLeast, -1, 0, 1, kMost); };
  const Heartbeat heartbeat{
      .session = 1,
      .number = 1,
      .sent_at = extreme(),
      .peer_sent_at = GENERATE(as<std::int64_t>(), kLeast, -1, 0, 1, 3'600'000'000'000, kMost),
      .received_at = GENERATE(as<std::int64_t>(), kLeast, -1, 0, 1, kMost)};
  CAPTURE(heartbeat.sent_at, heartbeat.peer_sent_at, heartbeat.received_at);
  CHECK(pair.here.receive(heartbeat, pair.now));
  CHECK(pair.here.confirmed_until() == began);
  CHECK(pair.here.last_heartbeat() == pair.now);
  pair.here.next(1, pair.now + 1s);
}
