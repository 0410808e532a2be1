#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mgpu::train {

// The kinds of recipes that `mgpu-train init` writes.
const std::vector<std::string>& template_kinds();

// A commented recipe of this kind, which parse_recipe accepts. Throws std::runtime_error with the
// kinds there are if `kind` is unknown.
std::string template_text(std::string_view kind);

}  // namespace mgpu::train
