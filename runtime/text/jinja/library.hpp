#pragma once

#include <string_view>

#include "runtime/text/jinja/value.hpp"

// The filters, tests and global functions available in every template: Jinja's and those that
// transformers adds.
namespace mgpu::text::jinja {

struct Entry {
  const char* name;
  Function function;
};

// Null if there is none with that name.
const Entry* find_filter(std::string_view name);
const Entry* find_text_filter(std::string_view name);  // filters that return texts
const Entry* find_list_filter(std::string_view name);  // filters that work on elements
const Entry* find_test(std::string_view name);
const Entry* find_global(std::string_view name);

template <std::size_t Size>
const Entry* find_entry(const Entry (&entries)[Size], std::string_view name) {
  for (const auto& entry : entries)
    if (name == entry.name) return &entry;
  return nullptr;
}

}  // namespace mgpu::text::jinja
