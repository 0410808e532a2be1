#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mgpu::text {

// Returns a JSON object with entries appended to the list or object under a key. All other bytes
// stay unchanged. The input must be well-formed. An entry is JSON; for an object it includes its
// key. If the key is absent or null, it gets a new list.
std::string with_appended(std::string_view json, std::string_view key,
                          std::span<const std::string> entries);

}  // namespace mgpu::text
