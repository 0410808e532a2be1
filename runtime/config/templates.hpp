#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mgpu::train {

// The kinds of recipe that `mgpu-train init` writes.
const std::vector<std::string>& template_kinds();

// A commented recipe of this kind, which our own parser takes. Throws std::runtime_error with the
// kinds there are.
std::string template_text(std::string_view kind);

}  // namespace mgpu::train
