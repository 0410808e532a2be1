#pragma once

#include "launcher/options/options.hpp"
#include "launcher/options/variables.hpp"
#include "rendezvous/authenticated_channel.hpp"

namespace mgpu::launcher {

// How the nodes of a job know each other: by the secret that was given, by munge under Slurm, or,
// with --insecure, not at all. Takes the secret out of our environment, so that ranks do not get
// it. Throws UsageError when there is no way.
rendezvous::Credentials find_credentials(const Options& options, const Variables& variables);

}  // namespace mgpu::launcher
