#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace mgpu::checkpoint {

// A regular expression in Python's words that is to match a whole name of a module.
class NamePattern {
 public:
  explicit NamePattern(const std::string& pattern);  // throws naming pattern and place
  NamePattern(NamePattern&&) noexcept;
  ~NamePattern();

  bool matches(std::string_view name) const;

 private:
  struct Code;
  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace mgpu::checkpoint
