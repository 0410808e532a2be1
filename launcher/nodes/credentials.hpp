#pragma once

#include "launcher/options/options.hpp"
#include "launcher/options/variables.hpp"
#include "rendezvous/authenticated_channel.hpp"

namespace mgpu::launcher {

// How the nodes of a job authenticate each other: with the given secret, with munge under Slurm,
// or, with --insecure, not at all. Removes the secret from the environment, so that ranks do not
// inherit it. Throws UsageError if none of these applies.
rendezvous::Credentials find_credentials(const Options& options, const Variables& variables);

}  // namespace mgpu::launcher
