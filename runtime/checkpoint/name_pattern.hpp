#pragma once

#include <string>
#include <string_view>

#include "runtime/text/compiled_pattern.hpp"

namespace mgpu::checkpoint {

// A regular expression in Python's syntax that must match a whole module name.
class NamePattern {
 public:
  explicit NamePattern(const std::string& pattern);  // throws with the pattern and the position

  bool matches(std::string_view name) const;

 private:
  std::string pattern_;
  text::CompiledPattern compiled_;
};

}  // namespace mgpu::checkpoint
