#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

namespace mgpu::rewards {

// A path into a JSON document: $.answer.items[0], $['a key'][-1]. No other JSONPath syntax is
// supported.
class JsonPath {
 public:
  explicit JsonPath(const std::string& text);  // throws with the text

  // The value at the path; null if there is none.
  const nlohmann::json* find(const nlohmann::json& document) const;

 private:
  std::vector<std::variant<std::string, long>> steps_;
};

}  // namespace mgpu::rewards
