#pragma once

#include <string>

namespace mgpu::launcher {

// Replaces the file's contents with the text and a line break. A regular file is replaced whole, or
// stays as it is, and keeps its owner and mode. It is written in place if it has several names, or
// if it cannot be replaced by a file beside it. /dev/stdout and /dev/stderr are written to as they
// are. Returns 0, or errno if that fails.
int write_file(const std::string& path, const std::string& text);

}  // namespace mgpu::launcher
