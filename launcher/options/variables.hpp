#pragma once

#include <functional>
#include <optional>
#include <string>

namespace mgpu::launcher {

// Looks a variable of the environment up by name.
using Variables = std::function<std::optional<std::string>(const std::string&)>;

// Those of this process.
std::optional<std::string> own_variable(const std::string& name);

}  // namespace mgpu::launcher
