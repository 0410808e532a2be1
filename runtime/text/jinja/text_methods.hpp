#pragma once

#include <string_view>

#include "runtime/text/jinja/access.hpp"

namespace mgpu::text::jinja {

// The methods of Python's str; null where it has none of that name. Those that templates do not
// use fail by name when they are called.
const Method* find_text_method(std::string_view name);

// text.replace(from, to, count), also the filter; a negative count is all.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        Integer count, Budget& budget);

}  // namespace mgpu::text::jinja
