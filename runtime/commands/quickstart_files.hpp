#pragma once

#include <span>
#include <string_view>

namespace mgpu::recipes {

struct QuickstartFile {
  const char* name;  // relative to docs/examples
  std::string_view text;
};

// The examples of docs/examples that need nothing else: recipes, data and a tokenizer. The build
// generates the code.
std::span<const QuickstartFile> quickstart_files();

}  // namespace mgpu::recipes
