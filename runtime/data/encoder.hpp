#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/data/row.hpp"

namespace mgpu::data {

using ByteSpans = std::vector<std::pair<std::size_t, std::size_t>>;  // [begin, end) of a text

// A conversation as text, and the bytes of it that the assistant says.
struct Chat {
  std::string text;
  ByteSpans assistant;
};

struct MarkedIds {
  std::vector<std::int32_t> ids;
  std::vector<bool> marked;  // of each token: whether a byte of a span is in it
};

// What turning rows into tokens needs of a tokenizer and its chat template. All of it may be called
// from several threads at once, and throws std::runtime_error for text it cannot take.
class Encoder {
 public:
  virtual ~Encoder() = default;

  virtual std::vector<std::int32_t> encode(std::string_view text, bool special) const = 0;
  // Without special tokens. The spans are in order and do not overlap.
  virtual MarkedIds encode_marked(std::string_view text, const ByteSpans& spans) const = 0;
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  virtual std::string eos() const = 0;    // the end-of-text token's string; empty: there is none
  virtual bool has_template() const = 0;  // whether `render` can be called
  virtual std::string render(const Json& messages, const Json& tools, bool add_generation_prompt,
                             const Json& extra) const = 0;
  virtual Chat render_marked(const Json& messages, const Json& tools, const Json& extra) const = 0;
  // Differs between encoders that would encode anything differently; part of the cache's key.
  virtual std::string fingerprint() const = 0;
};

}  // namespace mgpu::data
