#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/encoder.hpp"

namespace mgpu::data {

// A tokenizer's encode and decode functions. No special tokens are added.
struct Coder {
  std::function<std::vector<std::int32_t>(std::string_view)> encode;
  std::function<std::string(std::span<const std::int32_t>)> decode;
};

// Encodes a text and marks the tokens that overlap the spans, for a tokenizer that does not report
// token offsets. If the text can be cut at the ends of the spans without changing its encoding, the
// pieces give the tokens. Otherwise each end is located by decoding prefixes of the tokens.
MarkedIds encode_marked(const Coder& coder, std::string_view text, const ByteSpans& spans);

}  // namespace mgpu::data
