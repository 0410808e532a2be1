#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/options/variables.hpp"

namespace mgpu::launcher {

// Everything a person has asked for: the command line over MGPU_* over torchrun's PET_* over
// the launch: section of --config over that of the recipe, for each option by itself. Started
// under the name torchrun or torch-distributed-launch it has their defaults. Throws UsageError
// with the one line to print. Reads files, changes nothing.
Options parse_options(int argc, char* argv[]);
Options parse_options(const std::vector<std::string>& argv, const Variables& variables);

}  // namespace mgpu::launcher
