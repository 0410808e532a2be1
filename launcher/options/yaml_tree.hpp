#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// One value of a YAML file and its line. A map's items are its keys and values in turn. A value
// that was skipped keeps its kind and line, and has one null item if it is not empty.
struct YamlNode {
  enum class Kind { null, scalar, list, map, alias };
  Kind kind = Kind::null;
  std::string text;
  int line = 1;
  std::vector<YamlNode> items;
};

// Reads a YAML text, which must be one document with a map at the top. Keeps only its scalars and
// the value of the key `section`. Safe on any input: size and depth are limited, aliases are never
// followed. Throws UsageError, "path:line: what is wrong".
YamlNode parse_yaml(const std::string& text, const std::string& path, const std::string& section);

// The same for a file; rejects a file that cannot be read or is over 1 MiB. `origin` is the option
// that names the file, if any; a message about a file that cannot be read begins with it.
YamlNode read_yaml(const std::string& path, const std::string& section, const Origin& origin = {});

// The beginning of an error message about a line: "job.yaml:3".
std::string at_line(const std::string& path, int line);

}  // namespace mgpu::launcher
