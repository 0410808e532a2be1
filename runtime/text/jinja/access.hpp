#pragma once

#include <optional>
#include <string_view>

#include "runtime/text/jinja/value.hpp"

// value.name, value[index] and value[start:stop:step], with Jinja's order of looking: an attribute
// that is not there is looked for as an item and the other way round, and what is not there either
// way is undefined.
namespace mgpu::text::jinja {

Value attribute_of(const Value& value, std::string_view name, Budget& budget);
Value item_of(const Value& value, const Value& index, Budget& budget);
Value slice_of(const Value& value, const Value& start, const Value& stop, const Value& step,
               Budget& budget);

// What the value's Python type has under that name: a method, a namespace's variable, a member of
// loop. Nothing where the type has no such attribute.
std::optional<Value> own_attribute(const Value& value, std::string_view name);

// The methods of texts, lists, tuples and dictionaries.
struct Method {
  const char* name;
  Function function;
};
const Method* find_method(const Value& value, std::string_view name);
// Whether Python's type has such a method and the sandbox forbids it, since it changes the value.
bool changes_value(const Value& value, std::string_view name);

}  // namespace mgpu::text::jinja
