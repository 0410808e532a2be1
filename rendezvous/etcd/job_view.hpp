#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/etcd/answers.hpp"
#include "rendezvous/etcd/boot_clock.hpp"
#include "rendezvous/etcd/requests.hpp"

// What an election decides by: values in, values out, no clock and no I/O.
namespace mgpu::rendezvous::etcd {

// More than anybody has reason to put into a job's folder.
inline constexpr int kMaxJobKeys = 1000;

// Where a job's keys lie. Both hang on leases, so that nothing of a job stays for ever.
//
//   /mgpu-run/<job>/leader   "host:port" of the leader, on the leader's lease
//   /mgpu-run/<job>/state    what the leader must not lose, on a lease of its own that the leader
//                            keeps alive and that goes on for a while without one
//
// <job> is the job's id with every byte but letters, digits, '.', '_' and '-' as %XX, so that no
// id is the beginning of another's folder.
struct JobKeys {
  std::string folder;
  std::string leader;
  std::string state;

  static JobKeys of(std::string_view job);
};

// What is known of a job's keys. Answers and events may come in any order: what is older than what
// is known is left.
class JobView {
 public:
  explicit JobView(JobKeys keys) : keys_(std::move(keys)) {}

  // All keys of the folder as they were at a revision.
  void replace(const std::vector<KeyValue>& keys, std::int64_t revision);
  void apply(const WatchEvent& event);

  const std::optional<KeyValue>& leader() const { return leader_.known; }
  const std::optional<KeyValue>& state() const { return state_.known; }
  std::int64_t state_revision() const { return state_.known ? state_.known->mod_revision : 0; }
  std::int64_t newest_revision() const;  // revision of the last change that is known

 private:
  struct Slot {
    std::optional<KeyValue> known;
    std::int64_t revision = 0;  // what is known is at least as new as this
  };
  void put(Slot& slot, std::optional<KeyValue> key, std::int64_t revision);

  JobKeys keys_;
  Slot leader_;
  Slot state_;
};

// Until when a lease is there for sure. A lease lives at the servers for its TTL from some moment
// after the request for it was sent, so it is counted from there, less a twentieth for clocks that
// do not run alike.
class LeaseTimes {
 public:
  void confirmed(BootClock::time_point sent, std::chrono::seconds ttl);

  bool is_valid(BootClock::time_point now) const { return now < until_; }
  BootClock::time_point until() const { return until_; }
  BootClock::time_point renew_at() const { return renew_at_; }  // a third of the way
  std::chrono::seconds ttl() const { return ttl_; }

 private:
  BootClock::time_point until_;
  BootClock::time_point renew_at_;
  std::chrono::seconds ttl_{0};
};

// Makes `address` the leader if there is none; finds leader and state either way.
Transaction leader_transaction(const JobKeys& keys, const std::string& address, std::int64_t lease);

// Saves the state if the leader is still the one of `term` (its key's create revision) and the
// state is still of `state_revision`: a request of a leader that was, or one that was under way for
// long, changes nothing. Finds leader and state otherwise.
Transaction save_transaction(const JobKeys& keys, std::int64_t term, std::int64_t state_revision,
                             const std::string& state, std::int64_t lease);

}  // namespace mgpu::rendezvous::etcd
