// Datagrams on the port for heartbeats, which anybody may send, and heartbeats of a peer that has
// the key but any clock. The input is a list of records of 42 bytes: a byte that selects what
// happens, a byte for the time that passes, and the five numbers of a heartbeat. Selected by the
// low 2 bits:
//   0  the record's own bytes arrive as a datagram, cut to a length
//   1  a heartbeat with these numbers arrives, signed with another key
//   2  a heartbeat of the peer arrives that has one changed byte
//   3  a heartbeat of the peer arrives; bits 2 and 3: its number is the next one, it confirms ours

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "rendezvous/heartbeat.hpp"

using namespace mgpu::rendezvous;

namespace {

void require(bool what) {
  if (!what) std::abort();
}

constexpr std::size_t kRecord = 42;
const std::string kKey = "key", kOther = "other";

Heartbeat numbers_of(std::string_view bytes) {
  std::int64_t numbers[5] = {};
  std::memcpy(numbers, bytes.data(), std::min(bytes.size(), sizeof numbers));
  return {.session = static_cast<std::uint64_t>(numbers[0]),
          .number = static_cast<std::uint64_t>(numbers[1]),
          .sent_at = numbers[2],
          .peer_sent_at = numbers[3],
          .received_at = numbers[4]};
}

// Bytes that are not from the peer are no heartbeat, and belong to the session that they name.
void check_foreign(std::string_view datagram) {
  require(!decode_heartbeat(datagram, kKey));
  if (const auto session = session_of(datagram)) {
    require(datagram.size() == kHeartbeatBytes);
    require(std::memcmp(&*session, datagram.data() + 8, sizeof *session) == 0);
  }
}

class Side {
 public:
  Side() { tracker_.begin(now_); }

  void pass(std::uint8_t time) { now_ += Nanoseconds(std::int64_t{1} << (time % 48)); }

  void receive(const Heartbeat& heartbeat) {
    const auto confirmed = tracker_.confirmed_until();
    const auto datagram = encode(heartbeat, kKey);
    const auto decoded = decode_heartbeat(datagram, kKey);
    require(datagram.size() == kHeartbeatBytes && decoded && encode(*decoded, kKey) == datagram);
    require(session_of(datagram) == heartbeat.session);
    const bool is_new = heartbeat.number > newest_;
    require(tracker_.receive(*decoded, now_) == is_new);
    require(!tracker_.receive(*decoded, now_));  // a replay
    if (is_new) newest_ = heartbeat.number;
    require(tracker_.confirmed_until() >= confirmed && tracker_.confirmed_until() <= now_);
    require(tracker_.last_heartbeat() <= now_ && tracker_.round_trip().count() >= 0);
    require(is_new || tracker_.confirmed_until() == confirmed);
    const auto ours = tracker_.next(heartbeat.session, now_);
    require(ours.number == ++sent_ && ours.sent_at == now_.count());
  }

  std::uint64_t newest() const { return newest_; }
  Nanoseconds now() const { return now_; }

 private:
  HeartbeatTracker tracker_;
  Nanoseconds now_ = std::chrono::hours(1);
  std::uint64_t newest_ = 0, sent_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(input), size);
  Side side;
  for (int records = 0; rest.size() > 2 && records < 1000; ++records) {
    const auto choice = static_cast<std::uint8_t>(rest[0]);
    side.pass(static_cast<std::uint8_t>(rest[1]));
    const auto record = rest.substr(0, kRecord);
    Heartbeat heartbeat = numbers_of(record.substr(2));
    switch (choice % 4) {
      case 0:
        check_foreign(rest.substr(2, choice));
        break;
      case 1:
        check_foreign(encode(heartbeat, kOther));
        break;
      case 2: {
        auto changed = encode(heartbeat, kKey);
        char& byte = changed[choice / 4 % changed.size()];
        byte = static_cast<char>(byte ^ 1);
        require(!decode_heartbeat(changed, kKey));
        break;
      }
      default:
        if ((choice & 4) != 0 && side.newest() < UINT64_MAX) heartbeat.number = side.newest() + 1;
        if ((choice & 8) != 0) heartbeat.peer_sent_at = side.now().count() - choice;
        side.receive(heartbeat);
    }
    rest.remove_prefix(record.size());
  }
  return 0;
}
