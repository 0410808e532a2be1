#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mgpu::servers {

// Names of adapter versions, and the folders with these names. A server reports paths, and whoever
// runs it may report any path: nothing else is ever deleted.
std::string version_name(std::string_view mark, int number, std::int64_t step);
bool is_version_name(std::string_view name);

// Deletes the folder `name` in `parent`, if the name is that of a version. No link is followed.
void remove_version(const std::string& parent, std::string_view name);
// Deletes all of them, and then `parent` if it is empty.
void remove_all_versions(const std::string& parent);

}  // namespace mgpu::servers
