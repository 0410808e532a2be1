#include "rendezvous/heartbeat.hpp"

#include <cstring>
#include <limits>

#include "rendezvous/auth.hpp"

namespace mgpu::rendezvous {
namespace {

constexpr std::string_view kMagic = "MGPUBEAT";
constexpr std::size_t kCodeBytes = 16;
constexpr std::size_t kSigned = kHeartbeatBytes - kCodeBytes;
static_assert(kSigned == 8 + 5 * 8);

// A measurement is good for this long; clocks of machines drift by about 20 us in a second.
constexpr std::chrono::minutes kGoodFor{1};

// So that differences do not overflow.
bool may_be_a_time(std::int64_t time) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max() / 8;
  return time >= 0 && time <= kMost;
}

template <class Number>
Number number_at(std::string_view bytes, std::size_t index) {
  Number number;
  std::memcpy(&number, bytes.data() + 8 + 8 * index, sizeof number);
  return number;
}

template <class Number>
void put(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

}  // namespace

Nanoseconds steady_now() {
  return std::chrono::duration_cast<Nanoseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
}

std::string encode(const Heartbeat& beat, std::string_view key) {
  std::string out(kMagic);
  put(out, beat.session);
  put(out, beat.number);
  put(out, beat.sent);
  put(out, beat.heard);
  put(out, beat.heard_at);
  const auto code = auth::hmac_of(key, out);
  out.append(code.data(), kCodeBytes);
  return out;
}

std::optional<std::uint64_t> session_of(std::string_view datagram) {
  if (datagram.size() != kHeartbeatBytes || !datagram.starts_with(kMagic)) return std::nullopt;
  return number_at<std::uint64_t>(datagram, 0);
}

std::optional<Heartbeat> decode_heartbeat(std::string_view datagram, std::string_view key) {
  if (!session_of(datagram)) return std::nullopt;
  const auto code = auth::hmac_of(key, datagram.substr(0, kSigned));
  if (!auth::equal(datagram.substr(kSigned), {code.data(), kCodeBytes})) return std::nullopt;
  return Heartbeat{.session = number_at<std::uint64_t>(datagram, 0),
                   .number = number_at<std::uint64_t>(datagram, 1),
                   .sent = number_at<std::int64_t>(datagram, 2),
                   .heard = number_at<std::int64_t>(datagram, 3),
                   .heard_at = number_at<std::int64_t>(datagram, 4)};
}

Heartbeat HeartbeatTracker::next(std::uint64_t session, Nanoseconds now) {
  return {.session = session,
          .number = ++sent_number_,
          .sent = now.count(),
          .heard = newest_sent_,
          .heard_at = newest_sent_ != 0 ? last_heard_.count() : 0};
}

bool HeartbeatTracker::hear(const Heartbeat& beat, Nanoseconds now) {
  if (beat.number <= heard_number_) return false;
  heard_number_ = beat.number;
  newest_sent_ = beat.sent;
  last_heard_ = now;
  // A time that we have not reached cannot be one of ours, and no clock is near the ends.
  if (beat.heard <= 0 || beat.heard > now.count()) return true;
  if (!may_be_a_time(beat.sent) || !may_be_a_time(beat.heard_at)) return true;
  heard_until_ = std::max(heard_until_, Nanoseconds(beat.heard));
  const Nanoseconds there(beat.sent - beat.heard_at);
  const Nanoseconds trip = now - Nanoseconds(beat.heard) - there;
  if (trip.count() < 0) return true;
  if (!measured_ || trip <= best_trip_ || now - measured_at_ > kGoodFor) {
    measured_ = true;
    measured_at_ = now;
    best_trip_ = trip;
    offset_ = Nanoseconds(beat.heard_at) - Nanoseconds(beat.heard) - trip / 2;
  }
  return true;
}

std::optional<Nanoseconds> HeartbeatTracker::offset() const {
  return measured_ ? std::optional(offset_) : std::nullopt;
}

}  // namespace mgpu::rendezvous
