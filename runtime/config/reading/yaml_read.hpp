#pragma once

#include <string>

#include "rendezvous/yaml/yaml.hpp"

namespace mgpu::train {

using rendezvous::at_line;
using rendezvous::YamlNode;

// Reads one YAML (or JSON) document and resolves aliases and merge keys. Safe on any input: size,
// depth and the expansion of aliases are limited. Throws std::runtime_error; every message begins
// with `name` and the line.
YamlNode parse_yaml(const std::string& text, const std::string& name);

// Reads a regular file of at most 1 MiB in the same way.
YamlNode read_yaml(const std::string& path);

}  // namespace mgpu::train
