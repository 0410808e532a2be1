#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/config/resolve.hpp"
#include "tests/support/catch.hpp"

// Recipes of a few lines: a model and a dataset, on lines 1 and 2 of the file f, stand before them.
namespace mgpu::tests {

inline train::TrainConfig with(const std::string& lines, const train::RecipeOptions& options = {}) {
  return train::parse_recipe("model_name_or_path: m\ndataset_name: d.jsonl\n" + lines, "f",
                             options);
}

// All errors of a recipe; none if it is accepted.
inline std::vector<std::string> mistakes(const std::string& lines,
                                         const train::RecipeOptions& options = {}) {
  try {
    with(lines, options);
  } catch (const train::RecipeError& e) {
    return e.lines();
  }
  return {};
}

// The only error of a recipe.
inline std::string mistake(const std::string& lines, const train::RecipeOptions& options = {}) {
  const auto all = mistakes(lines, options);
  CHECK(all.size() == 1);
  return all.empty() ? "" : all.front();
}

inline bool noted(const train::TrainConfig& config, const std::string& part) {
  return std::any_of(config.notes.begin(), config.notes.end(),
                     [&](const auto& note) { return note.find(part) != note.npos; });
}

}  // namespace mgpu::tests
