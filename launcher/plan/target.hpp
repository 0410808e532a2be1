#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace mgpu::launcher {

// Resolves the target to the command that is executed: a .yaml runs mgpu-train, a .py or a module
// runs python, another executable runs itself. Throws UsageError with the reason in one line. Reads
// files and PATH, PYTHON_EXEC and MGPU_TRAIN of the environment; starts nothing.
CommandLine resolve_target(const Options& options);

// The mgpu-train for recipes: MGPU_TRAIN, else beside this program, else on PATH. Empty when there
// is none; throws UsageError when MGPU_TRAIN is not a program.
std::string trainer_program();

// The file of a program: its name if it contains a slash, else the first executable on PATH. Empty
// when there is none.
std::string find_on_path(const std::string& name);

}  // namespace mgpu::launcher
