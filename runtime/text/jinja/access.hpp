#pragma once

#include <optional>
#include <string_view>

#include "runtime/text/jinja/value.hpp"

// value.name, value[index] and value[start:stop:step], with Jinja's lookup order: a missing
// attribute is looked up as an item and the other way round. If both are missing, the result is
// undefined.
namespace mgpu::text::jinja {

Value attribute_of(const Value& value, std::string_view name, Budget& budget);
Value item_of(const Value& value, const Value& index, Budget& budget);
Value slice_of(const Value& value, const Value& start, const Value& stop, const Value& step,
               Budget& budget);

// The attribute of the value's Python type with that name: a method, a namespace's variable, a
// member of loop. Nothing if the type has no such attribute.
std::optional<Value> own_attribute(const Value& value, std::string_view name);

// The methods of texts, lists, tuples and dictionaries.
struct Method {
  const char* name;
  Function function;
};
const Method* find_method(const Value& value, std::string_view name);
// Whether Python's type has such a method but the sandbox forbids it because it changes the value.
bool changes_value(const Value& value, std::string_view name);

}  // namespace mgpu::text::jinja
