#pragma once

#include <optional>
#include <string>

#include "launcher/nodes/coordinator.hpp"
#include "launcher/options/options.hpp"
#include "rendezvous/etcd/members.hpp"

namespace mgpu::launcher {

// How the nodes of a job meet.
struct RendezvousPlan {
  std::string host;  // where the leader is
  int port = 0;
  std::optional<bool> runs_leader;  // whether we lead; unset: whoever has the address does
  int node_rank = -1;
  int position = -1;  // in the scheduler's order
  Coordinator::Settings rules;
  // Who leads is elected over etcd; host is empty then, port what a leader takes, 0: any.
  std::optional<rendezvous::etcd::Access> etcd;
  std::string local_addr;  // by which others reach us; empty: as we reach etcd
};

// What the options say of it; nothing when the job has one node only. Throws UsageError.
std::optional<RendezvousPlan> plan_rendezvous(const Options& options);

}  // namespace mgpu::launcher
