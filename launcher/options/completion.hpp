#pragma once

#include <string>

namespace mgpu::launcher {

// A script that teaches a shell (bash, zsh or fish) to complete mgpu-run's options, their
// values, and the target. Needs a shell that parse_options has let through.
std::string completion_script(const std::string& shell);

}  // namespace mgpu::launcher
