#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/encoder.hpp"
#include "runtime/data/shard.hpp"

namespace mgpu::data {

// The text of an example as the model sees it. Tokens with a loss are green and the others dim,
// special tokens bold; without colour those with a loss are within ⟦ and ⟧. Where the marks change,
// ↵ stands before a line feed with a loss. Other control characters are escaped. The text does not
// end with a line feed.
std::string shown_example(const Sequence& sequence, const Encoder& encoder, bool colour);

// One line per range of lengths with the number of examples and a bar; the last range ends at the
// longest one. Empty: there are no lengths.
std::vector<std::string> histogram(std::span<const std::uint32_t> lengths);

}  // namespace mgpu::data
