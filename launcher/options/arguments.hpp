#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_table.hpp"

namespace mgpu::launcher {

// Who says something, the strongest last.
enum class Source { recipe, config, pet, mgpu, line };

// One value that one source gives to one option.
struct Setting {
  const OptionSpec* spec = nullptr;
  Source source = Source::line;
  std::string name;  // as the person wrote it: --nproc, PET_NNODES, job.yaml:3: nproc
  std::string value;

  // What an error line begins with: "--nproc 0", "PET_NNODES=0", "job.yaml:3: nproc: 0".
  std::string origin() const;
};

// A command line cut in three: our options, what is to be run, and what belongs to that.
struct Arguments {
  std::vector<Setting> settings;
  std::optional<std::string> target;
  std::vector<std::string> rest;
};

// Reads the words after the program's name up to TARGET; what follows is not looked at.
// Throws UsageError for unknown and ambiguous names and for missing values.
Arguments read_arguments(const std::vector<std::string>& words);

}  // namespace mgpu::launcher
