#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/options.hpp"

namespace mgpu::launcher {

enum class OptionGroup { program, ranks, nodes, supervision, output, other };

// What a shell completes an option's value with; `words` are listed in `choices`.
enum class Completes { nothing, files, folders, words };

// How a YAML list or map is converted to the text that the flag would have on a command line.
enum class YamlForm { scalar, list, colon_map, equals_map };

// The complete definition of one option. The command line, environment, YAML files, help and
// completion all use it, so that each option is defined once.
struct OptionSpec {
  char letter = 0;
  std::vector<std::string> names = {};  // long, with dashes; the first is ours, the rest aliases
  std::string value = {};               // name of the value in the help; empty: a flag
  OptionGroup group = OptionGroup::other;
  std::string help = {};                                       // empty: not on the help screen
  std::function<void(Options&, const std::string&)> set = {};  // throws UsageError("need ...")
  std::string torchrun = {};  // torchrun's long name, empty: torchrun has no such option
  std::vector<std::string> variables = {};  // besides MGPU_<NAME>, read for every name
  YamlForm yaml = YamlForm::scalar;
  std::vector<std::string> file_keys = {};  // names accepted only in a launch: section
  bool repeats = false;                     // all occurrences are used, not only the last
  bool line_only = false;                   // accepted on the command line only
  bool internal = false;  // used between our own processes: not in help or completion
  Completes completes = Completes::nothing;
  std::vector<std::string> choices = {};

  const std::string& name() const { return names.front(); }
  bool is_flag() const { return value.empty(); }
};

const std::vector<OptionSpec>& option_table();

// The option with exactly this name, written with dashes or underscores; null: there is none.
const OptionSpec* find_option(std::string_view name);
const OptionSpec* find_option(char letter);

// "nproc-per-node" and "nproc_per_node".
std::string with_dashes(std::string_view name);
std::string with_underscores(std::string_view name);

}  // namespace mgpu::launcher
