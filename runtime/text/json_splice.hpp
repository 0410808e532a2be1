#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mgpu::text {

// Well-formed JSON, an object, with entries added at the end of the list or object that stands
// under a key; all else stays as it is, byte for byte. An entry is JSON, in an object with its key.
// A key that is absent or null is given a list.
std::string with_appended(std::string_view json, std::string_view key,
                          std::span<const std::string> entries);

}  // namespace mgpu::text
