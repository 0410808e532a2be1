#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/operators.hpp"

namespace mgpu::text::jinja {

// A for loop under way, which the template sees as `loop`. Elements that the loop's own condition
// refuses are not counted; the condition is asked about an element once, when it is reached or
// looked ahead to.
class Loop {
 public:
  using Condition = std::function<bool(const Value&)>;

  Loop(Elements elements, Condition admits)
      : elements_(std::move(elements)), admits_(std::move(admits)) {}

  bool advance();  // to the next element, the first at first
  const Value& current() const { return *at(index_); }
  // No more is asked or remembered: what stays alive of a loop that is over.
  void finish();

  std::optional<Value> attribute(std::string_view name, const Value& self);
  // Whether the arguments differ from those of the call before.
  bool changed(const std::vector<Value>& values, Budget& budget);
  std::size_t index() const { return index_; }

 private:
  const Value* at(std::size_t index) const;
  bool reach(std::size_t index);  // false where there are not so many
  std::size_t length();

  Elements elements_;
  Condition admits_;
  std::vector<std::size_t> admitted_;  // with a condition: their positions in elements_
  std::size_t looked_at_ = 0;
  std::size_t index_ = static_cast<std::size_t>(-1);
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace mgpu::text::jinja
