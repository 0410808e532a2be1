#pragma once

#include "runtime/text/jinja/value.hpp"

// The methods of str that search in a text.
namespace mgpu::text::jinja {

// The text of an argument. Throws a Failure that names the method if it is not a text.
const std::string& text_argument(const Value& value, std::string_view method);

Value starts_with(Interpreter& interpreter, const Value& self, const Arguments& arguments);
Value ends_with(Interpreter& interpreter, const Value& self, const Arguments& arguments);
Value count_in_text(Interpreter& interpreter, const Value& self, const Arguments& arguments);
Value split_lines_of(Interpreter& interpreter, const Value& self, const Arguments& arguments);
// find, index, rfind and rindex
template <bool from_right, bool must>
Value find_in_text(Interpreter& interpreter, const Value& self, const Arguments& arguments);
template <bool from_right>
Value split(Interpreter& interpreter, const Value& self, const Arguments& arguments);
template <bool from_right>
Value partition(Interpreter& interpreter, const Value& self, const Arguments& arguments);

}  // namespace mgpu::text::jinja
