#pragma once

#include "launcher/nodes/rendezvous_plan.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"
#include "rendezvous/authenticated_channel.hpp"

namespace mgpu::launcher {

// What runs and where, decided before anything starts.
struct JobPlan {
  CommandLine command;
  Placement placement;
  PlanFacts facts;  // its job_cookie and worker_socket are filled in by the event loop
  // Set in a multi-node job, where the leader decides the placement.
  std::optional<RendezvousPlan> rendezvous_plan;
  rendezvous::Credentials credentials;
};

// Inspects the target, the devices and the environment and plans the job of this node. Throws
// UsageError with the one line to print.
JobPlan plan_job(const Options& options);

}  // namespace mgpu::launcher
