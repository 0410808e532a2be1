#pragma once

#include <string>
#include <vector>

namespace mgpu::launcher {

// The folders in which a program's libraries are looked for first, as it has them written down
// (DT_RUNPATH, else DT_RPATH), with $ORIGIN filled in. None for what is no 64-bit ELF file of this
// byte order, or one that contradicts itself.
std::vector<std::string> runpath_of(const std::string& program);

}  // namespace mgpu::launcher
