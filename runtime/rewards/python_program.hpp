#pragma once

namespace mgpu::rewards {

// The text of reward_file.py, which the build embeds.
extern const char* const kPythonProgram;

}  // namespace mgpu::rewards
