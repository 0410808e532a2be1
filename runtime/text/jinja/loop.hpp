#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/operators.hpp"

namespace mgpu::text::jinja {

// A running for loop, visible in the template as `loop`. Elements rejected by the loop's condition
// are not counted. The condition is evaluated once per element, when the loop reaches it or looks
// ahead to it.
class Loop {
 public:
  using Condition = std::function<bool(const Value&)>;

  Loop(Elements elements, Condition condition)
      : elements_(std::move(elements)), condition_(std::move(condition)) {}

  bool advance();  // moves to the next element; the first call moves to the first
  const Value& current() const { return *at(index_); }
  // Ends the loop: drops the condition and the rejected elements, because the object itself may
  // live on.
  void finish();

  std::optional<Value> attribute(std::string_view name, const Value& self);
  // Whether the arguments differ from those of the previous call.
  bool changed(const std::vector<Value>& values, Budget& budget);
  std::size_t index() const { return index_; }

 private:
  const Value* at(std::size_t index) const;
  bool reach(std::size_t index);  // false if there are fewer elements
  std::size_t length();

  Elements elements_;
  Condition condition_;
  std::vector<std::size_t> admitted_;  // with a condition: their positions in elements_
  std::size_t looked_at_ = 0;
  std::size_t index_ = static_cast<std::size_t>(-1);
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace mgpu::text::jinja
