#pragma once

#include <string>
#include <vector>

namespace mgpu::launcher {

// The library search folders stored in a program (DT_RUNPATH, else DT_RPATH), with $ORIGIN
// expanded. Empty for a file that is not a valid 64-bit ELF file of this byte order.
std::vector<std::string> runpath_of(const std::string& program);

}  // namespace mgpu::launcher
