#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/boot_clock.hpp"
#include "rendezvous/etcd/answers.hpp"
#include "rendezvous/etcd/requests.hpp"

// The values that an election decides by. No clock, no I/O.
namespace mgpu::rendezvous::etcd {

// A job has two keys; the limit bounds what a read can return.
inline constexpr int kMaxJobKeys = 1000;

// The keys of a job. Both have leases, so that nothing of a job stays in etcd forever.
//
//   <prefix>/<job>/leader   "host:port" of the leader, on the leader's lease
//   <prefix>/<job>/state    the value that a leader must not lose, on a separate lease that the
//                           leader keeps alive and that outlasts the leader for a while
//
// <job> is the job's id as one part of a key. Both values are signed if the job has a secret (see
// Signer).
struct JobKeys {
  std::string folder;
  std::string leader;
  std::string state;

  // `prefix` has no slash at its end: "/mgpu-run/alice".
  static JobKeys of(std::string_view prefix, std::string_view job);
};

// A name as one part of a key: every byte but letters, digits, '.', '_' and '-' is written as %XX,
// so that no name's folder is a prefix of another's.
std::string key_part(std::string_view name);

// The newest known values of a job's keys. Responses and events may arrive in any order: values
// that are older than the known ones are ignored.
class JobView {
 public:
  explicit JobView(JobKeys keys) : keys_(std::move(keys)) {}

  // Sets all keys of the folder as of a revision.
  void replace(const std::vector<KeyValue>& keys, std::int64_t revision);
  void apply(const WatchEvent& event);

  const std::optional<KeyValue>& leader() const { return leader_.known; }
  const std::optional<KeyValue>& state() const { return state_.known; }
  std::int64_t state_revision() const { return state_.known ? state_.known->mod_revision : 0; }
  std::int64_t newest_revision() const;  // the revision of the last known change

 private:
  struct Slot {
    std::optional<KeyValue> known;
    std::int64_t revision = 0;  // `known` is at least as new as this
  };
  void put(Slot& slot, std::optional<KeyValue> key, std::int64_t revision);

  JobKeys keys_;
  Slot leader_;
  Slot state_;
};

// Until when a lease certainly exists. The servers count its TTL from some moment after the request
// was sent, so we count from when it was sent, less a twentieth for clocks that run at different
// speeds.
class LeaseTimes {
 public:
  void confirmed(BootClock::time_point sent, std::chrono::seconds ttl);

  bool is_valid(BootClock::time_point now) const { return now < until_; }
  BootClock::time_point until() const { return until_; }
  BootClock::time_point renew_at() const { return renew_at_; }  // after a third of the TTL
  std::chrono::seconds ttl() const { return ttl_; }

 private:
  BootClock::time_point until_;
  BootClock::time_point renew_at_;
  std::chrono::seconds ttl_{0};
};

// Writes the leader's key if there is none. Returns leader and state in either case.
Transaction leader_transaction(const JobKeys& keys, const std::string& value, std::int64_t lease);

// Saves the state if the leader's key still has the create revision `term` and the state still has
// `state_revision`. A request of a former leader, or one that was delayed for long, thus has no
// effect. Returns leader and state if nothing was saved.
Transaction save_transaction(const JobKeys& keys, std::int64_t term, std::int64_t state_revision,
                             const std::string& state, std::int64_t lease);

}  // namespace mgpu::rendezvous::etcd
