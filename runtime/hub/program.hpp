#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/hub/repository.hpp"

namespace mgpu::hub {

// A command that downloads the needed part of a repository into the cache of its hub.
struct Program {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // all of it
};

// Nothing: the program of the hub is not installed. It is searched in PATH and beside mgpu-train.
std::optional<Program> find_program(const Repository& repository);

// hf without arguments, with an environment in which it prints only what fails.
std::optional<Program> find_hf();

// The command that installs it.
std::string install_command(Site site);
std::string program_name(Site site);    // hf, modelscope
std::string cache_variable(Site site);  // HF_HOME, MODELSCOPE_CACHE
// The address of the hub that the program uses, for messages.
std::string endpoint(Site site);

// Whether HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids connections.
bool offline_by_environment();

}  // namespace mgpu::hub
