#pragma once

#include "runtime/text/jinja/value.hpp"

// The filters that make numbers: int, float, round, abs.
namespace mgpu::text::jinja {

Value to_whole(Interpreter& interpreter, const Value& self, const Arguments& arguments);
Value to_real(Interpreter& interpreter, const Value& self, const Arguments& arguments);
Value rounded(Interpreter& interpreter, const Value& self, const Arguments& arguments);
Value magnitude(Interpreter& interpreter, const Value& self, const Arguments& arguments);

}  // namespace mgpu::text::jinja
