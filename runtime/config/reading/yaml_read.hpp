#pragma once

#include <string>
#include <vector>

namespace mgpu::train {

// One value of a YAML file and its line. Scalars keep their text: the key decides what `no` or
// `5e-6` means (yaml_values.hpp).
struct YamlNode {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string text;
  bool quoted = false;
  int line = 1;
  std::vector<YamlNode> items;  // of a map: keys and values alternate

  bool is_map() const { return kind == Kind::map; }
  bool is_list() const { return kind == Kind::list; }
};

// Reads one YAML (or JSON) document and resolves aliases and merge keys. Safe on any input: size,
// depth and the expansion of aliases are limited. Throws std::runtime_error; every message begins
// with `name` and the line.
YamlNode parse_yaml(const std::string& text, const std::string& name);

// Reads a regular file of at most 1 MiB in the same way.
YamlNode read_yaml(const std::string& path);

// The prefix of an error message about a line of a file: "job.yaml:3".
std::string at_line(const std::string& name, int line);

}  // namespace mgpu::train
