#pragma once

#include <string>

namespace mgpu::launcher {

// Replaces the file's contents with the text and a line break. A regular file is replaced whole, or
// stays as it is, unless no file can be created in its folder. Returns 0, or errno if that fails.
int write_file(const std::string& path, const std::string& text);

}  // namespace mgpu::launcher
