#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// Reads YAML files that people write: launch files and recipes. Safe on any input.
namespace mgpu::rendezvous {

// One value of a YAML file and its line. Scalars keep their text: the key decides what `no` or
// `5e-6` means. A value that was skipped keeps its kind and line, and has one null item if it is
// not empty.
struct YamlNode {
  enum class Kind { null, scalar, list, map, alias };
  Kind kind = Kind::null;
  std::string text;
  bool quoted = false;
  int line = 1;
  std::vector<YamlNode> items;  // of a map: keys and values alternate

  bool is_map() const { return kind == Kind::map; }
  bool is_list() const { return kind == Kind::list; }
};

// What is wrong with a line of a YAML text.
class YamlError : public std::runtime_error {
 public:
  YamlError(int line, const std::string& what) : std::runtime_error(what), line_(line) {}
  int line() const { return line_; }

 private:
  int line_;
};

// What a reader accepts, and its messages about the rest. Limits that a reader does not need are
// left out.
struct YamlRules {
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  std::size_t most_bytes = 1 << 20;
  std::size_t deepest = 32;           // levels
  std::size_t most_nodes = kNoLimit;  // including anchored copies and expanded aliases
  std::size_t most_text = kNoLimit;   // bytes, likewise
  bool expands_aliases = false;       // else an alias is a node
  bool only_core_tags = false;
  bool only_word_keys = false;  // else keys may be lists and maps
  std::optional<std::string>
      only_section{};  // keep of the top map its scalars and this key's value
  std::function<void(YamlNode&)> finish_map{};  // changes or rejects a complete map

  std::string too_large{};
  std::string second_document{};
  std::string too_deep{};
  std::string too_many{};
  const char* quote = "";  // around a repeated key
};

// Reads one YAML document; keys of a map are unique. Throws YamlError.
YamlNode parse_yaml(const std::string& text, const YamlRules& rules);

// The text of a file, of one that is too large one byte more than most_bytes. Throws "cannot read
// PATH: ..."; `only_regular` refuses devices, pipes and folders.
std::string read_yaml_text(const std::string& path, std::size_t most_bytes, bool only_regular);

// The beginning of an error message about a line of a file: "job.yaml:3".
std::string at_line(const std::string& name, int line);

}  // namespace mgpu::rendezvous
