#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/text/jinja/value.hpp"

namespace mgpu::text::jinja {

namespace {

Value from_json(const nlohmann::ordered_json& json, Budget& budget, int depth);

Value from_object(const nlohmann::ordered_json& json, Budget& budget, int depth) {
  Dict dict;
  for (const auto& [key, value] : json.items())
    dict.set(Value(key), from_json(value, budget, depth + 1), budget);
  return Value(std::move(dict));
}

Value from_array(const nlohmann::ordered_json& json, Budget& budget, int depth) {
  std::vector<Value> items;
  items.reserve(json.size());
  for (const auto& value : json) items.push_back(from_json(value, budget, depth + 1));
  return Value::list(std::move(items), budget);
}

Value from_json(const nlohmann::ordered_json& json, Budget& budget, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  check_depth(depth);
  budget.spend(1);
  switch (json.type()) {
    case Type::null:
      return {};
    case Type::boolean:
      return {json.get<bool>()};
    case Type::number_integer:
      return {static_cast<Integer>(json.get<std::int64_t>())};
    case Type::number_unsigned:
      return {static_cast<Integer>(json.get<std::uint64_t>())};
    case Type::number_float:
      return {json.get<double>()};
    case Type::string: {
      const auto& text = json.get_ref<const std::string&>();
      budget.spend_bytes(text.size());
      return {std::string(text)};
    }
    case Type::array:
      return from_array(json, budget, depth);
    case Type::object:
      return from_object(json, budget, depth);
    case Type::binary:
    case Type::discarded:
      break;
  }
  throw Failure(
      fmt::format("a template cannot be given a JSON value of type {}", json.type_name()));
}

}  // namespace

Value from_json(const nlohmann::ordered_json& json, Budget& budget) {
  return from_json(json, budget, 0);
}

}  // namespace mgpu::text::jinja
