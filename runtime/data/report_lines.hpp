#pragma once

#include <string>
#include <vector>

#include "runtime/data/dataset.hpp"

namespace mgpu::data {

// What a person has to know of a file whose rows did not all become examples as they are, a line
// each with how many and, where it helps, the first. None if there is nothing to tell.
std::vector<std::string> lines_of(const SourceReport& report, std::int64_t max_length);

}  // namespace mgpu::data
