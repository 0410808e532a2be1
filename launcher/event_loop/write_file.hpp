#pragma once

#include <string>

namespace mgpu::launcher {

// Replaces the file's contents with the text and a line break. Returns 0, or errno if that fails.
int write_file(const std::string& path, const std::string& text);

}  // namespace mgpu::launcher
