#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace mgpu::checkpoint {

// A regular expression in Python's syntax that must match a whole module name.
class NamePattern {
 public:
  explicit NamePattern(const std::string& pattern);  // throws with the pattern and the position
  NamePattern(NamePattern&&) noexcept;
  ~NamePattern();

  bool matches(std::string_view name) const;

 private:
  struct Code;
  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace mgpu::checkpoint
