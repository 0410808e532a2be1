#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace mgpu::data {

// Keeps the keys of an object in the order of the file: templates print tools and arguments so.
using Json = nlohmann::ordered_json;

// What is wrong with one row; whoever knows the file and the line puts them in front.
class RowError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The object that a line of a JSONL file holds. Throws RowError for anything else: no JSON, invalid
// UTF-8, something after the object, a key that is there twice, a number that does not fit,
// nesting deeper than 200.
Json parse_row(std::string_view line);

// The length in bytes of the UTF-8 character that a text (not empty) begins with; 0: it is none.
std::size_t character_length(std::string_view text);

// Text of a stranger as a message may show it: one line of valid UTF-8 without control characters,
// cut after about `limit` bytes, never inside a character.
std::string shown(std::string_view text, std::size_t limit = 60);

// Blank: nothing but spaces, tabs and carriage returns.
bool blank(std::string_view line);

// Takes the first line off `rest` and returns it without its line feed.
std::string_view take_line(std::string_view& rest);

}  // namespace mgpu::data
