#pragma once

#include "runtime/text/jinja/value.hpp"

// The filters that sort, select and map elements, by value or by an attribute.
namespace mgpu::text::jinja {

// The value at a dotted path such as "function.name" or 0, resolved item by item. If an item is
// missing and `other` is given, the path continues from `other`.
Value path_of(const Value& item, const Value& path, Budget& budget, const Value* other = nullptr);

// How elements are compared: by an attribute or by value, case-sensitive or not.
struct SortKey {
  Value attribute;
  bool case_sensitive = false;

  Value of(const Value& item, Budget& budget) const;
};

Value attribute_filter(Interpreter& interpreter, const Value& self, const Arguments& arguments);
Value map(Interpreter& interpreter, const Value& self, const Arguments& arguments);
Value sort(Interpreter& interpreter, const Value& self, const Arguments& arguments);
Value dict_sort(Interpreter& interpreter, const Value& self, const Arguments& arguments);
Value group_by(Interpreter& interpreter, const Value& self, const Arguments& arguments);
// select, reject, selectattr, rejectattr
template <bool wanted, bool by_attribute>
Value pick(Interpreter& interpreter, const Value& self, const Arguments& arguments);
template <bool largest>
Value extreme(Interpreter& interpreter, const Value& self, const Arguments& arguments);

}  // namespace mgpu::text::jinja
