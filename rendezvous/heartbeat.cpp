#include "rendezvous/heartbeat.hpp"

#include <limits>

#include "rendezvous/auth.hpp"
#include "rendezvous/base/binary_numbers.hpp"
#include "rendezvous/base/boot_clock.hpp"

namespace mgpu::rendezvous {
namespace {

constexpr std::string_view kMagic = "MGPUBEAT";
constexpr std::size_t kSignedBytes = kHeartbeatBytes - auth::kCodeBytes;
static_assert(kSignedBytes == 8 + 5 * 8);

// A clock offset is valid for this long; clocks drift by about 20 us per second.
constexpr std::chrono::minutes kMeasurementLifetime{1};

// Bounds times so that their differences do not overflow.
bool is_plausible_time(std::int64_t time) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max() / 8;
  return time >= 0 && time <= kMost;
}

// Field `index` of a datagram.
template <class Number>
Number field_at(std::string_view datagram, std::size_t index) {
  return number_at<Number>(datagram, kMagic.size() + 8 * index);
}

}  // namespace

Nanoseconds boot_now() {
  return BootClock::now().time_since_epoch();
}

std::string encode(const Heartbeat& heartbeat, std::string_view key) {
  std::string out(kMagic);
  put_number(out, heartbeat.session);
  put_number(out, heartbeat.number);
  put_number(out, heartbeat.sent_at);
  put_number(out, heartbeat.peer_sent_at);
  put_number(out, heartbeat.received_at);
  const auto code = auth::hmac_of(key, out);
  out.append(code.data(), auth::kCodeBytes);
  return out;
}

std::optional<std::uint64_t> session_of(std::string_view datagram) {
  if (datagram.size() != kHeartbeatBytes || !datagram.starts_with(kMagic)) return std::nullopt;
  return field_at<std::uint64_t>(datagram, 0);
}

std::optional<Heartbeat> decode_heartbeat(std::string_view datagram, std::string_view key) {
  if (!session_of(datagram)) return std::nullopt;
  const auto code = auth::hmac_of(key, datagram.substr(0, kSignedBytes));
  if (!auth::equal(datagram.substr(kSignedBytes), {code.data(), auth::kCodeBytes}))
    return std::nullopt;
  return Heartbeat{.session = field_at<std::uint64_t>(datagram, 0),
                   .number = field_at<std::uint64_t>(datagram, 1),
                   .sent_at = field_at<std::int64_t>(datagram, 2),
                   .peer_sent_at = field_at<std::int64_t>(datagram, 3),
                   .received_at = field_at<std::int64_t>(datagram, 4)};
}

Heartbeat HeartbeatTracker::next(std::uint64_t session, Nanoseconds now) {
  return {.session = session,
          .number = ++sent_number_,
          .sent_at = now.count(),
          .peer_sent_at = peer_sent_at_,
          .received_at = peer_sent_at_ != 0 ? last_heartbeat_.count() : 0};
}

bool HeartbeatTracker::receive(const Heartbeat& heartbeat, Nanoseconds now) {
  if (heartbeat.number <= received_number_) return false;
  received_number_ = heartbeat.number;
  peer_sent_at_ = heartbeat.sent_at;
  last_heartbeat_ = now;
  // A time in the future cannot be one that we sent, and no real clock is near the limits.
  if (heartbeat.peer_sent_at <= 0 || heartbeat.peer_sent_at > now.count()) return true;
  if (!is_plausible_time(heartbeat.sent_at) || !is_plausible_time(heartbeat.received_at))
    return true;
  confirmed_until_ = std::max(confirmed_until_, Nanoseconds(heartbeat.peer_sent_at));
  const Nanoseconds there(heartbeat.sent_at - heartbeat.received_at);
  const Nanoseconds trip = now - Nanoseconds(heartbeat.peer_sent_at) - there;
  if (trip.count() < 0) return true;
  if (!measured_ || trip <= best_trip_ || now - measured_at_ > kMeasurementLifetime) {
    measured_ = true;
    measured_at_ = now;
    best_trip_ = trip;
    offset_ = Nanoseconds(heartbeat.received_at) - Nanoseconds(heartbeat.peer_sent_at) - trip / 2;
  }
  return true;
}

std::optional<Nanoseconds> HeartbeatTracker::offset() const {
  return measured_ ? std::optional(offset_) : std::nullopt;
}

}  // namespace mgpu::rendezvous
