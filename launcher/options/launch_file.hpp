#pragma once

#include <string>
#include <vector>

#include "launcher/options/arguments.hpp"

namespace mgpu::launcher {

// The contents of one file: settings for options, and notes to print.
struct LaunchFile {
  std::vector<Setting> settings;
  std::vector<std::string> notes;
};

// Reads the launch: section of a recipe, and the options that recipes of other projects set outside
// it (num_gpus, max_retries and the like). Other keys are skipped. Throws UsageError with path and
// line for anything that is not valid.
LaunchFile read_recipe(const std::string& path);

// Reads a --config file: a launch: section, or an `accelerate` config, recognized by its keys. If
// the target is a recipe, the trainer reads the same `accelerate` config too. `origin` is the
// option that names the file, for messages.
LaunchFile read_config(const std::string& path, bool for_recipe, const Origin& origin = {});

// The same for a text in memory; error messages name it `path`.
LaunchFile parse_recipe(const std::string& text, const std::string& path);
LaunchFile parse_config(const std::string& text, const std::string& path, bool for_recipe = false);

}  // namespace mgpu::launcher
