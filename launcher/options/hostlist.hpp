#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mgpu::launcher {

// Expands a Slurm host list, in its order: "a[01-03,7],b[1-2]x[3-4]" is a01, a02,
// a03, a7, b1x3, b1x4, b2x3, b2x4. Numbers keep the leading zeros of the start of their range.
// Throws UsageError that contains the list when it is not valid or expands to more than 65,536
// names.
std::vector<std::string> expand_hostlist(std::string_view list);

}  // namespace mgpu::launcher
