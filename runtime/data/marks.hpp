#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/encoder.hpp"

namespace mgpu::data {

// The two directions of a tokenizer, without special tokens put before or behind.
struct Coder {
  std::function<std::vector<std::int32_t>(std::string_view)> encode;
  std::function<std::string(std::span<const std::int32_t>)> decode;
};

// Encodes a text and finds the tokens that spans of it lie in, for a tokenizer that does not tell
// where its tokens come from. Where the pieces between the spans' ends, encoded alone, make up the
// whole, that is all; otherwise each end is looked for in what the first tokens decode to.
MarkedIds encode_marked(const Coder& coder, std::string_view text, const ByteSpans& spans);

}  // namespace mgpu::data
