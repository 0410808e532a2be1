#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/config/reading/reading.hpp"

namespace mgpu::train {

// All errors of a recipe, one per line; what() has all lines.
class RecipeError : public std::runtime_error {
 public:
  explicit RecipeError(std::vector<std::string> lines);
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

[[noreturn]] inline void throw_recipe_error(std::string line) {
  throw RecipeError({std::move(line)});
}

struct RecipeOptions {
  std::vector<std::string> set;    // "key=value"; wins over the file, and the last of one key wins
  bool allow_unknown = false;      // unknown keys are notes instead of errors
  ReadFile read_file = read_yaml;  // reads a file that the recipe names (deepspeed)
};

// Reads a recipe into a configuration. Every key is interpreted, refused or mentioned in
// config.notes; none is dropped silently. An empty path: the recipe consists of options.set. Throws
// RecipeError.
TrainConfig read_recipe(const std::string& path, const RecipeOptions& options = {});

// Does the same for a text; messages use `name` as the file name.
TrainConfig parse_recipe(const std::string& text, const std::string& name,
                         const RecipeOptions& options = {});

}  // namespace mgpu::train
