#pragma once

#include <string>
#include <vector>

namespace mgpu::launcher {

// One value of a YAML file with the line it stands on. A map's items are its keys and values
// in turn; a value that was not asked for keeps its kind and line, and one null item if it holds
// anything.
struct YamlNode {
  enum class Kind { null, scalar, list, map, alias };
  Kind kind = Kind::null;
  std::string text;
  int line = 1;
  std::vector<YamlNode> items;
};

// Reads the first document of a YAML text that must be a map. Of its values only scalars and
// what stands under the key `section` are kept. Safe on any input: size and depth are limited,
// aliases are never followed. Throws UsageError, "path:line: what is wrong".
YamlNode parse_yaml(const std::string& text, const std::string& path, const std::string& section);

// The same for a file; refuses what cannot be read or is over 1 MiB.
YamlNode read_yaml(const std::string& path, const std::string& section);

// What an error line in a file begins with: "job.yaml:3".
std::string at_line(const std::string& path, int line);

}  // namespace mgpu::launcher
