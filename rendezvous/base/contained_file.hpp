#pragma once

#include <cstddef>
#include <string>

namespace mgpu::rendezvous {

// Reads a file of a folder that somebody else has made, such as a model's: a regular file in the
// folder, or a link to one inside the folder, or in a snapshot of the Hub's cache
// (.../models--NAME/snapshots/COMMIT) a link to a blob of the same model. Other links could show,
// and save into the output, any file that we can read. Throws std::runtime_error with one line that
// names the file; also if the file is larger than `limit`.
std::string read_contained_file(const std::string& folder, const std::string& name,
                                std::size_t limit);

}  // namespace mgpu::rendezvous
