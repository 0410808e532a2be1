#pragma once

#include "runtime/text/jinja/value.hpp"

// The filters that sort, pick and map elements, by themselves or by an attribute.
namespace mgpu::text::jinja {

// What a dotted path such as "function.name" or 0 leads to, item by item. Where one of them is not
// there, the other value is taken for it, if there is one, and the path goes on from that.
Value path_of(const Value& item, const Value& path, Budget& budget, const Value* other = nullptr);

// By what elements are compared: an attribute or none, texts without regard to case or with it.
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
