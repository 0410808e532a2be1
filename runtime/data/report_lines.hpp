#pragma once

#include <string>
#include <vector>

#include "runtime/data/dataset.hpp"

namespace mgpu::data {

// Lines for the user about rows of a file that were skipped, cut, dropped or read differently: each
// with the count and, where useful, the first such row. Empty if there is nothing to report.
std::vector<std::string> lines_of(const SourceReport& report, std::int64_t max_length);

}  // namespace mgpu::data
