#pragma once

#include <string>
#include <vector>

namespace mgpu::train {

// One value of a YAML file and the line it was written on. Scalars stay as they were written: what
// `no` or `5e-6` means is decided by the key they are given to (yaml_values.hpp).
struct YamlNode {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string text;
  bool quoted = false;
  int line = 1;
  std::vector<YamlNode> items;  // of a map: its keys and values in turn

  bool is_map() const { return kind == Kind::map; }
  bool is_list() const { return kind == Kind::list; }
};

// Reads one YAML (or JSON) document. Aliases and merge keys are followed; `name` and the line
// stand before every complaint. Safe on any input: the bytes, the depth and what aliases unfold
// to are limited. Throws std::runtime_error.
YamlNode parse_yaml(const std::string& text, const std::string& name);

// The same for a regular file of at most 1 MiB.
YamlNode read_yaml(const std::string& path);

// What an error line in a file begins with: "job.yaml:3".
std::string at_line(const std::string& name, int line);

}  // namespace mgpu::train
