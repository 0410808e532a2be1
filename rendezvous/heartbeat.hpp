#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mgpu::rendezvous {

// Times of this machine's steady clock; another machine's mean nothing here without an offset.
using Nanoseconds = std::chrono::nanoseconds;

Nanoseconds steady_now();

// A sign of life: a datagram, or the same bytes as a frame. It tells when it was sent and which
// sign of the other side was the last to arrive, so that each side knows until when the other had
// heard it, and how far their clocks are apart.
struct Heartbeat {
  std::uint64_t session = 0;
  std::uint64_t number = 0;       // grows; one that does not is a replay or late, and is dropped
  std::int64_t sent_at = 0;       // by the sender's clock
  std::int64_t peer_sent_at = 0;  // the newest `sent` it has of us, by our clock; 0: none
  std::int64_t received_at = 0;   // when that came, by the sender's clock
};

inline constexpr std::size_t kHeartbeatBytes = 64;

// `key` is that of the direction.
std::string encode(const Heartbeat& heartbeat, std::string_view key);
// The session that a datagram says it belongs to; nothing when it is none of ours.
std::optional<std::uint64_t> session_of(std::string_view datagram);
// Nothing when it is not whole or its code does not fit the key.
std::optional<Heartbeat> decode_heartbeat(std::string_view datagram, std::string_view key);

// One side's account of the signs between two.
class HeartbeatTracker {
 public:
  Heartbeat next(std::uint64_t session, Nanoseconds now);
  // False: a replay, or older than one that we have.
  bool receive(const Heartbeat& heartbeat, Nanoseconds now);

  // When the last sign came, by our clock.
  Nanoseconds last_heartbeat() const { return last_heartbeat_; }
  // The newest time of ours of which we know that the other side heard from us then or later.
  Nanoseconds confirmed_until() const { return confirmed_until_; }
  // What to add to a time of ours to have it by the other's clock; from the quickest of the last
  // exchanges. Nothing before the first.
  std::optional<Nanoseconds> offset() const;
  Nanoseconds round_trip() const { return best_trip_; }

  void begin(Nanoseconds now) { last_heartbeat_ = confirmed_until_ = now; }

 private:
  std::uint64_t sent_number_ = 0;
  std::uint64_t received_number_ = 0;
  std::int64_t peer_sent_at_ = 0;  // by the other's clock
  Nanoseconds last_heartbeat_{0};
  Nanoseconds confirmed_until_{0};
  Nanoseconds best_trip_{0};
  Nanoseconds offset_{0};
  Nanoseconds measured_at_{0};
  bool measured_ = false;
};

}  // namespace mgpu::rendezvous
