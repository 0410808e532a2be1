#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_table.hpp"

namespace mgpu::launcher {

// Where a value comes from, the strongest source last.
enum class Source { recipe, config, pet, mgpu, line };

// A value that a source sets for an option.
struct Setting {
  const OptionSpec* spec = nullptr;
  Source source = Source::line;
  std::string name;  // as the user wrote it: --nproc, PET_NNODES, job.yaml:3: nproc
  std::string value;

  Origin origin() const;
};

// A command line in three parts: our options, the target, and the arguments of the target.
struct Arguments {
  std::vector<Setting> settings;
  std::optional<std::string> target;
  std::vector<std::string> rest;
};

// Parses the arguments after the program's name up to TARGET; later arguments are not examined.
// Throws UsageError for unknown and ambiguous names and for missing values.
Arguments read_arguments(const std::vector<std::string>& words);

}  // namespace mgpu::launcher
