#pragma once

#include <string>

#include "runtime/rewards/sandbox/enter.hpp"

namespace mgpu::rewards {

// One line: the host, the step that failed, the system's reason and what to do. `path` is what the
// step was about, if it is about a path.
std::string failure_text(const SandboxFailure& failure, const std::string& path);

}  // namespace mgpu::rewards
