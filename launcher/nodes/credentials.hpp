#pragma once

#include "launcher/nodes/rendezvous_plan.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/variables.hpp"
#include "rendezvous/authenticated_channel.hpp"

namespace mgpu::launcher {

// How the nodes of a job authenticate each other: with the given secret, with munge under Slurm,
// or, with --insecure, not at all. Removes the secret from the environment, so that ranks do not
// inherit it. Throws UsageError if none of these applies.
rendezvous::Credentials find_credentials(const Options& options, const Variables& variables);

// Throws UsageError if the plan uses etcd, where the job's values should be signed, and the nodes
// have no secret in common. With --insecure they are not signed: everyone is trusted.
void check_signing(const Options& options, const RendezvousPlan& plan,
                   const rendezvous::Credentials& credentials);

}  // namespace mgpu::launcher
