#pragma once

#include <cstdint>
#include <span>

#include "runtime/data/batch.hpp"
#include "runtime/data/dataset.hpp"

namespace mgpu::data {

// Lays examples end to end. Targets are shifted within each sequence, so its last token has none.
// Without examples, returns the one-token batch that adds nothing.
Batch collate(const Dataset& dataset, std::span<const std::uint32_t> examples);

}  // namespace mgpu::data
