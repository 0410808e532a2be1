#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "launcher/doctor/checks.hpp"
#include "launcher/options/options.hpp"
#include "launcher/ranks/inherited.hpp"

namespace mgpu::launcher {

std::string doctor_text(const std::vector<Finding>& findings);
std::string doctor_json(const std::vector<Finding>& findings);

// `mgpu-run doctor [--port N] [--json]`: checks this machine and prints one line per check, with
// advice for those that did not pass. Returns the exit status: 1 when a check failed, else 0.
int run_doctor_command(const Options& options, const Inherited& inherited, std::ostream& out);

}  // namespace mgpu::launcher
