#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/config/reading/reading.hpp"

namespace mgpu::train {

// All that is wrong with a recipe, a line each; what() is the lines.
class RecipeError : public std::runtime_error {
 public:
  explicit RecipeError(std::vector<std::string> lines);
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

struct RecipeOptions {
  std::vector<std::string> set;    // "key=value", stronger than the file; the last of one key wins
  bool allow_unknown = false;      // unknown keys leave a note and are no errors
  ReadFile read_file = read_yaml;  // how a file that the recipe names (deepspeed) is read
};

// A recipe as a configuration: every key understood, none silently dropped. config.notes has what
// is taken otherwise than it was written. Throws RecipeError.
TrainConfig read_recipe(const std::string& path, const RecipeOptions& options = {});

// The same for a text; `name` is what the file is called in messages.
TrainConfig parse_recipe(const std::string& text, const std::string& name,
                         const RecipeOptions& options = {});

}  // namespace mgpu::train
