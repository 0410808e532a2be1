#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/options.hpp"

namespace mgpu::launcher {

enum class OptionGroup { program, ranks, nodes, supervision, output, other };

// What a shell may complete an option's value with; words stand in `choices`.
enum class Completes { nothing, files, folders, words };

// How a YAML list or map becomes the text that a flag would carry.
enum class YamlForm { scalar, list, colon_map, equals_map };

// Everything there is to know of one option. argv, environment, YAML, help and completion are
// all served from here, so that an option is written down once.
struct OptionSpec {
  char letter = 0;
  std::vector<std::string> names = {};  // long, with dashes; the first is ours, the rest aliases
  std::string value = {};               // what help calls the value; empty: a flag
  OptionGroup group = OptionGroup::other;
  std::string help = {};                                       // empty: not on the help screen
  std::function<void(Options&, const std::string&)> set = {};  // throws UsageError("need ...")
  std::string torchrun = {};  // torchrun's long name, empty: torchrun has no such option
  std::vector<std::string> variables = {};  // foreign ones; MGPU_<NAME> is read for every name
  YamlForm yaml = YamlForm::scalar;
  std::vector<std::string> file_keys = {};  // names that only a launch: section may use
  bool repeats = false;                     // every occurrence counts, not only the last
  bool line_only = false;                   // neither in the environment nor in a file
  bool internal = false;                    // between programs of ours: no help, no completion
  Completes completes = Completes::nothing;
  std::vector<std::string> choices = {};

  const std::string& name() const { return names.front(); }
  bool is_flag() const { return value.empty(); }
};

const std::vector<OptionSpec>& option_table();

// The option of exactly this name, with dashes or underscores; null when there is none.
const OptionSpec* find_option(std::string_view name);
const OptionSpec* find_option(char letter);

// "--nproc", and "nproc_per_node" as a file has it.
std::string with_dashes(std::string_view name);
std::string with_underscores(std::string_view name);

}  // namespace mgpu::launcher
