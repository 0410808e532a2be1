#pragma once

#include "launcher/nodes/rendezvous_plan.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"
#include "rendezvous/authenticated_channel.hpp"

namespace mgpu::launcher {

// What is to be run and where, decided before anything starts.
struct JobPlan {
  CommandLine command;
  Placement placement;
  PlanFacts facts;  // its job_cookie is filled in by the event loop
  // In a job over several nodes the placement is the leader's to tell.
  std::optional<RendezvousPlan> rendezvous_plan;
  rendezvous::Credentials credentials;
};

// Looks at the target, the devices and our environment and makes the plan of this node. Throws
// UsageError with the one line to print.
JobPlan plan_job(const Options& options);

}  // namespace mgpu::launcher
