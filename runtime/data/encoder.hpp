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

using ByteSpans =
    std::vector<std::pair<std::size_t, std::size_t>>;  // byte ranges [begin, end) of a text

// A conversation as text, and the byte ranges of the assistant's part.
struct Chat {
  std::string text;
  ByteSpans assistant;
};

struct MarkedIds {
  std::vector<std::int32_t> ids;
  std::vector<bool> marked;  // per token: whether it contains a byte of a span
};

// The interface to a tokenizer and its chat template that is needed to turn rows into tokens. All
// functions may be called from several threads at once and throw std::runtime_error for text that
// cannot be encoded.
class Encoder {
 public:
  virtual ~Encoder() = default;

  virtual std::vector<std::int32_t> encode(std::string_view text, bool special) const = 0;
  // Encodes without special tokens. The spans must be in order and must not overlap.
  virtual MarkedIds encode_marked(std::string_view text, const ByteSpans& spans) const = 0;
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  virtual bool special(std::int32_t id) const = 0;
  virtual std::string eos() const = 0;    // the text of the end-of-text token; empty: none
  virtual bool has_template() const = 0;  // whether `render` can be called
  virtual std::string render(const Json& messages, const Json& tools, bool add_generation_prompt,
                             const Json& extra) const = 0;
  virtual Chat render_marked(const Json& messages, const Json& tools, const Json& extra) const = 0;
  // Whether the source of the chat template has this name, so that it may write what the name
  // stands for.
  virtual bool template_names(std::string_view name) const = 0;
  // Part of the cache key: two encoders that would encode anything differently have different
  // fingerprints.
  virtual std::string fingerprint() const = 0;
};

}  // namespace mgpu::data
