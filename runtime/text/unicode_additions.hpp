#pragma once

#include <span>
#include <string_view>

namespace mgpu::text {

struct CodePointRange {
  char32_t first, last;
};

struct CategoryRange {
  char32_t first, last;
  const char* category;  // two letters
};

// The code points that Unicode 15, 15.1 and 16 assigned, with their general category. Pre-tokenizer
// patterns use Unicode 16's categories, but a library may have those of Unicode 14 only.
std::span<const CategoryRange> assigned_after_unicode_14();

// The code points of Unicode 14 with a combining class, a composition or a decomposition that the
// normalizers of Hugging Face's tokenizers do not have.
std::span<const CodePointRange> unknown_to_normalizers();

}  // namespace mgpu::text
