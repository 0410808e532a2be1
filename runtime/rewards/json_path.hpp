#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

namespace mgpu::rewards {

// A place in a JSON document: $.answer.items[0], $['a key'][-1]. Nothing else of JSONPath.
class JsonPath {
 public:
  explicit JsonPath(const std::string& text);  // throws naming the text

  // What stands there, null when nothing does.
  const nlohmann::json* find(const nlohmann::json& document) const;

 private:
  std::vector<std::variant<std::string, long>> steps_;
};

}  // namespace mgpu::rewards
