#pragma once

#include <string>

#include "launcher/options/launch_file.hpp"
#include "launcher/options/yaml_tree.hpp"

namespace mgpu::launcher {

// Whether a file's keys are those that `accelerate config` writes.
bool is_accelerate_file(const YamlNode& top);

// Reads the settings that a launcher supports; notes list what is left out. For a recipe nothing is
// left out: the trainer gets the file as the recipe's `deepspeed`, reads the rest (the ZeRO stage,
// precision) and reports what it does not support.
LaunchFile read_accelerate_file(const YamlNode& top, const std::string& path, bool for_recipe);

}  // namespace mgpu::launcher
