#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/dataset.hpp"

namespace mgpu::data {

// The examples that equal an earlier one, in their tokens and in the labels of these; in ascending
// order.
std::vector<std::uint32_t> repeated_examples(const Dataset& dataset);

}  // namespace mgpu::data
