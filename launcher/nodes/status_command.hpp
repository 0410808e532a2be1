#pragma once

#include <iosfwd>
#include <string>

#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// `mgpu-run status JOB [--json]`: asks the leader of a job over several nodes and prints what it
// says. JOB is the job's id, or HOST:PORT of its leader; for an id the leader is at
// --rdzv-endpoint, or where an agent of ours on this machine has noted it. Returns the exit status;
// throws with one line when the leader cannot be asked.
int run_status_command(const Options& options, std::ostream& out);

// The leader's answer (JSON) for people. Throws when it is no such answer.
std::string status_text(const std::string& answer);

}  // namespace mgpu::launcher
