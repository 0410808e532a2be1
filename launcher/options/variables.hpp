#pragma once

#include <functional>
#include <optional>
#include <string>

namespace mgpu::launcher {

// Looks up an environment variable by name.
using Variables = std::function<std::optional<std::string>(const std::string&)>;

// Reads this process's environment.
std::optional<std::string> own_variable(const std::string& name);

}  // namespace mgpu::launcher
