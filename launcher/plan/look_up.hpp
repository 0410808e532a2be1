#pragma once

#include <functional>

#include "launcher/devices/system_tree.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace mgpu::launcher {

// What planning needs to know of this node.
struct NodeFacts {
  int nproc = 1;
  PlanFacts facts;  // all but its job_cookie
};

// Finds the GPUs, counts the ranks and finds their cores. `get` is std::getenv or the like.
// Throws UsageError when the machine cannot give what was asked for.
NodeFacts look_up_node(const Options& options, const Roots& roots,
                       const std::function<const char*(const char*)>& get);

}  // namespace mgpu::launcher
