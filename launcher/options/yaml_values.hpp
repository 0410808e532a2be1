#pragma once

#include <string>
#include <vector>

#include "launcher/options/option_table.hpp"
#include "launcher/options/yaml_tree.hpp"

namespace mgpu::launcher {

// A scalar's text; `name` is what errors call it ("job.yaml:3: nproc").
// Throws UsageError for lists, maps, aliases, nothing at all, and text with a NUL in it.
std::string scalar_text(const YamlNode& node, const std::string& name);

// A YAML value as the texts that flags of this option would carry: one, or for an option that
// repeats one for each entry. Lists and maps are joined where the option's form allows them.
std::vector<std::string> option_texts(const OptionSpec& spec, const YamlNode& node,
                                      const std::string& name);

}  // namespace mgpu::launcher
