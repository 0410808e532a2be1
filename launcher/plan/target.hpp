#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace mgpu::launcher {

// Turns what is to be run into the program that is exec'ed, or says in one line why it cannot be:
// a .yaml runs mgpu-train, a .py or a module runs python, an executable that is no Python itself.
// Looks at files and at PATH, PYTHON_EXEC and MGPU_TRAIN of the environment; starts nothing.
CommandLine resolve_target(const Options& options);

// The mgpu-train that recipes run with: MGPU_TRAIN, else beside this program, else on PATH. Empty
// when there is none; throws UsageError when MGPU_TRAIN names none.
std::string trainer_program();

// The file that a program's name means: as it is when it holds a slash, else the first
// executable on PATH. Empty when there is none.
std::string find_on_path(const std::string& name);

}  // namespace mgpu::launcher
