#pragma once

#include <string>

namespace mgpu::launcher {

// A completion script for bash, zsh or fish that completes mgpu-run's options, their values, and
// the target. Requires a shell name that parse_options accepted.
std::string completion_script(const std::string& shell);

}  // namespace mgpu::launcher
