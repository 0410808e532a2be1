#pragma once

#include <string>
#include <vector>

#include "launcher/options/option_table.hpp"
#include "launcher/options/yaml_tree.hpp"

namespace mgpu::launcher {

// The text of a scalar; error messages name it `name` ("job.yaml:3: nproc"). Throws UsageError for
// lists, maps, aliases, a missing value, and text that contains a NUL.
std::string scalar_text(const YamlNode& node, const std::string& name);

// Converts a YAML value to the texts that the option would have on a command line: one text, or one
// per entry for a repeatable option. Lists and maps are joined if the option's form allows them.
std::vector<std::string> option_texts(const OptionSpec& spec, const YamlNode& node,
                                      const std::string& name);

}  // namespace mgpu::launcher
