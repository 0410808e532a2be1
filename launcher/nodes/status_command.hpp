#pragma once

#include <iosfwd>
#include <string>

#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// `mgpu-run status JOB [--json]`: queries the leader of a multi-node job and prints the job's
// status. JOB is the job's id, or HOST:PORT of its leader. For an id, the leader's address is
// --rdzv-endpoint, or the one that this user's agent on this machine has stored. Returns the exit
// status; throws an error with a one-line message if the leader cannot be queried.
int run_status_command(const Options& options, std::ostream& out);

// Formats the leader's answer (JSON) as text. Throws if it cannot be parsed.
std::string status_text(const std::string& answer);

}  // namespace mgpu::launcher
