#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::data {

// Keeps the keys of an object in file order, because templates print tools and arguments in that
// order.
using Json = nlohmann::ordered_json;

// The reason why one row is bad. The caller adds the file and the line in front.
class RowError : public rendezvous::InputError {
 public:
  using InputError::InputError;
};

// Parses the object on one line of a JSONL file. Throws RowError for anything else: invalid JSON or
// UTF-8, content after the object, a duplicate key, a number that does not fit into 64 bits,
// nesting deeper than 200.
Json parse_row(std::string_view line);

// The length in bytes of the UTF-8 character at the beginning of a text, which must not be empty; 0
// if invalid.
std::size_t character_length(std::string_view text);

// Makes untrusted text safe for a message: one line of valid UTF-8 without control characters, cut
// after about `limit` bytes, never inside a character.
std::string printable(std::string_view text, std::size_t limit = 60);

// True if the line has only spaces, tabs and carriage returns.
bool blank(std::string_view line);

// Removes the first line from `rest` and returns it without its line feed.
std::string_view take_line(std::string_view& rest);

}  // namespace mgpu::data
