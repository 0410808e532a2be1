#include "runtime/data/text_encoder.hpp"

#include <utility>

#include <fmt/format.h>

#include "runtime/data/digest.hpp"
#include "runtime/data/marks.hpp"

namespace mgpu::data {

namespace {

std::string fingerprint_of(const text::Tokenizer& tokenizer, const std::string& chat_template) {
  std::string all = sha256(chat_template);
  for (const auto& [name, content] : tokenizer.files())
    all += fmt::format(" {} {}", name, sha256(content));
  return sha256(all);
}

}  // namespace

TextEncoder::TextEncoder(const text::Tokenizer& tokenizer, const std::string& chat_template)
    : tokenizer_(tokenizer) {
  const std::string& source = chat_template.empty() ? tokenizer.chat_template() : chat_template;
  if (!source.empty())
    template_.emplace(source, text::ChatTemplate::Tokens{.bos = tokenizer.bos_token(),
                                                         .eos = tokenizer.eos_token(),
                                                         .pad = tokenizer.pad_token(),
                                                         .unk = tokenizer.unk_token()});
  fingerprint_ = fingerprint_of(tokenizer, source);
}

std::vector<std::int32_t> TextEncoder::encode(std::string_view text, bool special) const {
  return tokenizer_.encode(text, special);
}

MarkedIds TextEncoder::encode_marked(std::string_view text, const ByteSpans& spans) const {
  const Coder coder{
      .encode = [this](std::string_view piece) { return tokenizer_.encode(piece, false); },
      .decode =
          [this](std::span<const std::int32_t> ids) { return tokenizer_.decode(ids, false); }};
  return data::encode_marked(coder, text, spans);
}

std::string TextEncoder::decode(std::span<const std::int32_t> ids) const {
  return tokenizer_.decode(ids, false);
}

std::string TextEncoder::render(const Json& messages, const Json& tools, bool add_generation_prompt,
                                const Json& extra) const {
  return template_.value().render(messages, tools, add_generation_prompt, extra).text;
}

Chat TextEncoder::render_marked(const Json& messages, const Json& tools, const Json& extra) const {
  text::Rendered rendered = template_.value().render_with_assistant(messages, tools, extra);
  return {.text = std::move(rendered.text), .assistant = std::move(rendered.assistant)};
}

bool TextEncoder::template_names(std::string_view name) const {
  return template_ && template_->source().find(name) != std::string::npos;
}

}  // namespace mgpu::data
