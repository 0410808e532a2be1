#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace mgpu::launcher {

// The lines of a text, without their line feeds.
std::vector<std::string_view> lines_of(std::string_view text);

// The text up to its first line feed.
std::string_view first_line(std::string_view text);

// The last line of a text that may end with line breaks.
std::string_view last_line(std::string_view text);

// At most `count` last lines, at least 1, of such a text, without the line breaks at its end.
std::string_view last_lines(std::string_view text, std::size_t count);

}  // namespace mgpu::launcher
