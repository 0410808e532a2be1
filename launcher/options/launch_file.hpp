#pragma once

#include <string>
#include <vector>

#include "launcher/options/arguments.hpp"

namespace mgpu::launcher {

// What one file says: settings for options, and lines to tell the person.
struct LaunchFile {
  std::vector<Setting> settings;
  std::vector<std::string> notes;
};

// The launch: section of a recipe; nothing when it has none. Other sections are not looked at.
// Throws UsageError with path and line for anything that is not known to be right.
LaunchFile read_recipe(const std::string& path);

// A file named by --config: a launch: section, or a config of `accelerate`, known by its keys.
LaunchFile read_config(const std::string& path);

// The same for a text that is already here; `path` is what errors call it.
LaunchFile parse_recipe(const std::string& text, const std::string& path);
LaunchFile parse_config(const std::string& text, const std::string& path);

}  // namespace mgpu::launcher
