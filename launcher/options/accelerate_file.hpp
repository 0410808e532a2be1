#pragma once

#include <string>

#include "launcher/options/launch_file.hpp"
#include "launcher/options/yaml_tree.hpp"

namespace mgpu::launcher {

// Whether a file's keys are those that `accelerate config` writes.
bool is_accelerate_file(const YamlNode& top);

// Takes from it what a launcher can do and says in one line what it leaves out.
LaunchFile read_accelerate_file(const YamlNode& top, const std::string& path);

}  // namespace mgpu::launcher
