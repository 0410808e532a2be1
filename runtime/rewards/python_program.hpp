#pragma once

namespace mgpu::rewards {

// reward_file.py, which the build puts into the program.
extern const char* const kPythonProgram;

}  // namespace mgpu::rewards
