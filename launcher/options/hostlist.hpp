#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mgpu::launcher {

// The names that a Slurm host list stands for, in its order: "a[01-03,7],b[1-2]x[3-4]" is a01, a02,
// a03, a7, b1x3, b1x4, b2x3, b2x4. A number keeps the zeros of the range's beginning. Throws
// UsageError with a line that holds the list when it is none, or stands for more than 65,536 names.
std::vector<std::string> expand_hostlist(std::string_view list);

}  // namespace mgpu::launcher
