#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/options/variables.hpp"

namespace mgpu::launcher {

// Collects the options. For each option the strongest source wins: the command line, MGPU_*,
// torchrun's PET_*, the launch: section of --config, then that of the recipe. Under the program
// name torchrun or torch-distributed-launch the defaults of that program apply. Throws UsageError
// with the one line to print. Reads files, changes nothing.
Options parse_options(int argc, char* argv[]);
Options parse_options(const std::vector<std::string>& argv, const Variables& variables);

}  // namespace mgpu::launcher
