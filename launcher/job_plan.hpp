#pragma once

#include "launcher/options.hpp"
#include "launcher/plan.hpp"

namespace mgpu::launcher {

// What is to be run and where, decided before anything starts.
struct JobPlan {
  CommandLine command;
  Placement placement;
  PlanFacts facts;  // its job_cookie is filled in by the event loop
};

// Looks at the target, the devices and our environment and makes the plan of this node. Throws
// UsageError with the one line to print.
JobPlan plan_job(const Options& options);

}  // namespace mgpu::launcher
