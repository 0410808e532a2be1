#pragma once

#include <string>

namespace mgpu::launcher {

// Throws UsageError if the target exists and is neither a regular file nor a folder, or is a
// descriptor of this process, such as /dev/stdin: every rank opens the target and reads it from its
// beginning. A file that another process has open, /proc/<pid>/fd/<n>, is accepted.
void require_saved_file(const std::string& target);

}  // namespace mgpu::launcher
