#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/base/boot_clock.hpp"

namespace mgpu::rendezvous::etcd {

// What an Election reports.
struct ElectionStatus {
  bool is_leader = false;   // at the time of the report; check Election::leading() before acting
  std::string leader = {};  // the leader's address; empty: there is none, or it is rejected
  std::int64_t term = 0;    // of this leader; larger than the term of every earlier leader
  std::optional<std::string> state = {};  // the last saved state
  // One line each: why the value in etcd is rejected; or empty.
  std::string leader_rejected = {};
  std::string state_rejected = {};
  std::string problem = {};  // why etcd is unreachable and the rest may be outdated; or empty
  bool permanent = false;    // the problem is the user, password or permissions
  BootClock::time_point answered_at = {};  // if there is a problem: when etcd last answered

  friend bool operator==(const ElectionStatus&, const ElectionStatus&) = default;
};

}  // namespace mgpu::rendezvous::etcd
