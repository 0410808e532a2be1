#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/encoder.hpp"
#include "runtime/text/chat_template.hpp"
#include "runtime/text/tokenizer.hpp"

namespace mgpu::data {

// A model's tokenizer and chat template. The tokenizer must outlive it and must not change.
class TextEncoder : public Encoder {
 public:
  // `chat_template`: source of a template that replaces the tokenizer's own; empty: use the
  // tokenizer's.
  explicit TextEncoder(const text::Tokenizer& tokenizer, const std::string& chat_template = {});

  std::vector<std::int32_t> encode(std::string_view text, bool special) const override;
  MarkedIds encode_marked(std::string_view text, const ByteSpans& spans) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  bool special(std::int32_t id) const override { return tokenizer_.special(id); }
  std::string eos() const override { return tokenizer_.eos_token(); }
  bool has_template() const override { return template_.has_value(); }
  std::string render(const Json& messages, const Json& tools, bool add_generation_prompt,
                     const Json& extra) const override;
  Chat render_marked(const Json& messages, const Json& tools, const Json& extra) const override;
  bool template_names(std::string_view name) const override;
  std::string fingerprint() const override { return fingerprint_; }

 private:
  const text::Tokenizer& tokenizer_;
  std::optional<text::ChatTemplate> template_;
  std::string fingerprint_;
};

}  // namespace mgpu::data
