#pragma once

#include <cstdint>
#include <string>

namespace mgpu::hub {

// The bytes of a repository's files in the cache, also of those that are being written. Space that
// is reserved and not yet written does not count.
std::int64_t bytes_in(const std::string& repository_folder);

// Removes the files that interrupted downloads have left in a repository's folder and that no later
// one can continue. Files that another process writes are kept: it holds hf's lock of the file.
// `all`: also files that could be continued.
void remove_partial_files(const std::string& repository_folder, bool all);

}  // namespace mgpu::hub
