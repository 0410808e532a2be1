#pragma once

#include <string>

#include "launcher/options/options.hpp"
#include "rendezvous/yaml/yaml.hpp"

namespace mgpu::launcher {

using rendezvous::at_line;
using rendezvous::YamlNode;

// Reads a YAML text, which must be one document with a map at the top. Keeps only its scalars and
// the value of the key `section`. Safe on any input: size and depth are limited, aliases are never
// followed. Throws UsageError, "path:line: what is wrong".
YamlNode parse_yaml(const std::string& text, const std::string& path, const std::string& section);

// The same for a file; rejects a file that cannot be read or is over 1 MiB. `origin` is the option
// that names the file, if any; a message about a file that cannot be read begins with it.
YamlNode read_yaml(const std::string& path, const std::string& section, const Origin& origin = {});

}  // namespace mgpu::launcher
