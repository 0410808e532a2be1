#pragma once

#include <string>
#include <string_view>

namespace mgpu::text::jinja {

// A character's full case mappings, independent of its context.
std::u32string upper_case(char32_t code);
std::u32string title_case(char32_t code);
std::u32string lower_case(char32_t code);

}  // namespace mgpu::text::jinja
