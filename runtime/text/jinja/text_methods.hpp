#pragma once

#include <string_view>

#include "runtime/text/jinja/access.hpp"

namespace mgpu::text::jinja {

// The methods of Python's str; null if it has none with that name. Methods that templates do not
// use throw an error with their name when called.
const Method* find_text_method(std::string_view name);

// text.replace(from, to, count), also the filter; a negative count is all.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        Integer count, Budget& budget);

}  // namespace mgpu::text::jinja
