#pragma once

#include <functional>

#include "launcher/devices/system_tree.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace mgpu::launcher {

// The facts about this node that planning needs.
struct NodeFacts {
  int nproc = 1;
  PlanFacts facts;  // all but its job_cookie and worker_socket
};

// Finds the GPUs, counts the ranks and finds their cores. `get` reads an environment variable, like
// std::getenv. Throws UsageError when the machine does not have what was requested.
NodeFacts look_up_node(const Options& options, const Roots& roots,
                       const std::function<const char*(const char*)>& get);

}  // namespace mgpu::launcher
