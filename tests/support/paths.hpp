#pragma once

#include <string>

namespace mgpu::tests {

// Absolute paths of files of this repository and of its build. One small file of the build contains
// them: as macros they would keep the compiler cache from serving several clones.
std::string in_sources(const std::string& path);
std::string in_build(const std::string& path);

}  // namespace mgpu::tests
