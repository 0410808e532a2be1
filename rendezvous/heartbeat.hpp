#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mgpu::rendezvous {

// Times of this machine's BootClock. Times of another machine need an offset to be comparable.
using Nanoseconds = std::chrono::nanoseconds;

Nanoseconds boot_now();

// A heartbeat: a datagram, or the same bytes in a frame. It contains when it was sent and which
// heartbeat of the peer arrived last. From these each side knows until when the peer has heard it,
// and the offset between the two clocks.
struct Heartbeat {
  std::uint64_t session = 0;
  std::uint64_t number = 0;  // increases; any other number is a replay or late, and is dropped
  std::int64_t sent_at = 0;  // by the sender's clock
  // The sent_at of the last heartbeat from the peer, by the peer's clock; 0: none.
  std::int64_t peer_sent_at = 0;
  std::int64_t received_at = 0;  // when that one arrived, by the sender's clock
};

inline constexpr std::size_t kHeartbeatBytes = 64;

// `key` is the key of this direction.
std::string encode(const Heartbeat& heartbeat, std::string_view key);
// The session that a datagram claims to belong to; nothing if it is not a heartbeat.
std::optional<std::uint64_t> session_of(std::string_view datagram);
// Nothing if the datagram is incomplete or its authentication code does not match the key.
std::optional<Heartbeat> decode_heartbeat(std::string_view datagram, std::string_view key);

// Tracks the heartbeats between this side and one peer.
class HeartbeatTracker {
 public:
  Heartbeat next(std::uint64_t session, Nanoseconds now);
  // False: a replay, or older than one received before.
  bool receive(const Heartbeat& heartbeat, Nanoseconds now);

  // When the last heartbeat arrived, by our clock.
  Nanoseconds last_heartbeat() const { return last_heartbeat_; }
  // The latest time of our clock at which, as the peer has confirmed, it still heard from us.
  Nanoseconds confirmed_until() const { return confirmed_until_; }
  // What to add to a time of our clock to convert it to the peer's clock, from the exchange with
  // the shortest round trip of late. Nothing before the first exchange.
  std::optional<Nanoseconds> offset() const;
  Nanoseconds round_trip() const { return best_trip_; }

  void begin(Nanoseconds now) { last_heartbeat_ = confirmed_until_ = now; }

 private:
  std::uint64_t sent_number_ = 0;
  std::uint64_t received_number_ = 0;
  std::int64_t peer_sent_at_ = 0;  // by the peer's clock
  Nanoseconds last_heartbeat_{0};
  Nanoseconds confirmed_until_{0};
  Nanoseconds best_trip_{0};
  Nanoseconds offset_{0};
  Nanoseconds measured_at_{0};
  bool measured_ = false;
};

}  // namespace mgpu::rendezvous
