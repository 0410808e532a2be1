#pragma once

#include "launcher/plan/binding.hpp"
#include "launcher/ranks/inherited.hpp"
#include "rendezvous/processes/spawn.hpp"

namespace mgpu::launcher {

using rendezvous::ChildSetup;
using rendezvous::Spawned;

// Starts a child with the signals and the descriptor limit that this process has inherited, bound
// to cores and memory. `cgroup_procs` is the open cgroup.procs of a v1 cgroup for it, -1: none. See
// rendezvous::spawn.
Spawned spawn(ChildSetup setup, const Inherited& inherited, const BindingMask& binding = {},
              int cgroup_procs = -1);

}  // namespace mgpu::launcher
