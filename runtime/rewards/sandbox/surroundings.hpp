#pragma once

#include <string>
#include <vector>

namespace mgpu::rewards {

// Those of the given files and folders that lie in a folder that a sandbox hides (/tmp, /dev/shm),
// as absolute paths, folders before what they contain. Missing ones and the hidden folders
// themselves are left out.
std::vector<std::string> in_hidden_folders(const std::vector<std::string>& paths);

}  // namespace mgpu::rewards
