#pragma once

#include <optional>
#include <string>

#include "launcher/nodes/coordinator.hpp"
#include "launcher/options/options.hpp"
#include "rendezvous/etcd/members.hpp"

namespace mgpu::launcher {

// How the nodes of a job find each other.
struct RendezvousPlan {
  std::string host;  // of the leader
  int port = 0;
  std::optional<bool> runs_leader;  // on this node; unset: the node that owns the address does
  int node_rank = -1;
  int position = -1;  // in the scheduler's order
  Coordinator::Settings rules;
  // Set if the leader is elected over etcd. Then host is empty, and port is the port of a leader on
  // this node; 0: any free one.
  std::optional<rendezvous::etcd::Access> etcd;
  // With etcd: where the keys of the job are, without a slash at the end. Empty: not given, so the
  // caller sets default_etcd_prefix().
  std::string etcd_prefix;
  // With etcd: accept values there that are not signed, although the job has a secret.
  bool accept_unsigned_state = false;
  std::string conf_origin;  // of the settings in `etcd`: the beginning of a message about one
  std::string
      local_addr;  // at which other nodes reach this one; empty: the local address towards etcd
};

// Derives the plan from the options; nothing if the job has only one node. Throws UsageError.
std::optional<RendezvousPlan> plan_rendezvous(const Options& options);

}  // namespace mgpu::launcher
