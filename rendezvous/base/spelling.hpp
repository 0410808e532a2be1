#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::rendezvous {

// User input in a form that is safe in an error message: printable(), on one line,
// cut after `limit` bytes (never inside a UTF-8 character), '' if empty.
std::string shown(std::string_view text, std::size_t limit = 72);

// The known word that is closest to `word`, for "did you mean ..."; empty if none is close enough
// to be helpful. Of equally close words the first wins.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace mgpu::rendezvous
