#pragma once

#include <string>

namespace mgpu::launcher {

// Replaces the file's contents with the text and a line break. False, with errno, if that fails.
bool write_file(const std::string& path, const std::string& text);

}  // namespace mgpu::launcher
