#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace mgpu::launcher {

// The line of an instruction of a Python function, from the function's co_linetable (Python 3.11
// and later). `instruction` counts code units of two bytes. Nullopt: the table has no line for it.
// Pure.
std::optional<int> line_of_instruction(std::string_view table, int first_line,
                                       std::int64_t instruction);

}  // namespace mgpu::launcher
