#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/data/encoder.hpp"

namespace mgpu::tests {

// An encoder with one id per byte, a few words that are one id, and a template that is easy to
// read:
//
//   <user>How?<end><assistant>So.<end>
//
// "ab" is one id too, so that a prompt ending in "a" is tokenized differently before a "b".
class ToyEncoder : public data::Encoder {
 public:
  static constexpr std::int32_t kAb = 256, kEos = 257, kBos = 258, kEnd = 259;

  bool bos = false;
  bool with_template = true;
  bool with_tools = true;  // in the template
  bool with_eos = true;
  std::string name = "toy";
  mutable std::atomic<int> encoded{0};  // calls of encode and encode_marked

  std::vector<std::int32_t> encode(std::string_view text, bool special) const override {
    std::vector<std::int32_t> ids = pieces(text).ids;
    if (special && bos) ids.insert(ids.begin(), kBos);
    return ids;
  }

  data::MarkedIds encode_marked(std::string_view text,
                                const data::ByteSpans& spans) const override {
    const Pieces all = pieces(text);
    data::MarkedIds out{.ids = all.ids};
    for (const auto& [begin, end] : all.spans)
      out.marked.push_back(std::any_of(spans.begin(), spans.end(), [&](const auto& span) {
        return span.first < span.second && begin < span.second && span.first < end;
      }));
    return out;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string out;
    for (const std::int32_t id : ids)
      out += id < 256 ? std::string(1, static_cast<char>(id))
                      : std::string(kWords[static_cast<std::size_t>(id - 256)]);
    return out;
  }

  bool special(std::int32_t id) const override { return id >= kEos; }
  std::string eos() const override { return with_eos ? "<eos>" : ""; }
  bool has_template() const override { return with_template; }
  bool template_names(std::string_view) const override { return with_tools; }

  std::string render(const data::Json& messages, const data::Json& tools,
                     bool add_generation_prompt, const data::Json& extra) const override {
    return chat(messages, tools, extra).text + (add_generation_prompt ? "<assistant>" : "");
  }
  data::Chat render_marked(const data::Json& messages, const data::Json& tools,
                           const data::Json& extra) const override {
    return chat(messages, tools, extra);
  }
  std::string fingerprint() const override { return name + (bos ? " bos" : ""); }

 private:
  static constexpr std::array<std::string_view, 4> kWords = {"ab", "<eos>", "<bos>", "<end>"};

  struct Pieces {
    std::vector<std::int32_t> ids;
    data::ByteSpans spans;
  };

  Pieces pieces(std::string_view text) const {
    ++encoded;
    Pieces out;
    out.ids.reserve(text.size());
    out.spans.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      std::size_t length = 1;
      std::int32_t id = static_cast<unsigned char>(text[at]);
      const bool may_be_word = text[at] == 'a' || text[at] == '<';
      for (std::size_t w = 0; may_be_word && w < kWords.size(); ++w)
        if (text.substr(at).starts_with(kWords[w])) {
          length = kWords[w].size();
          id = 256 + static_cast<std::int32_t>(w);
        }
      out.ids.push_back(id);
      out.spans.emplace_back(at, at + length);
      at += length;
    }
    return out;
  }

  static data::Chat chat(const data::Json& messages, const data::Json& tools,
                         const data::Json& extra) {
    data::Chat out;
    if (!tools.is_null()) out.text += "<tools " + tools.dump() + ">";
    if (!extra.empty()) out.text += "<extra " + extra.dump() + ">";
    for (const data::Json& message : messages) {
      const auto role = message.at("role").get<std::string>();
      if (role == "unknown") throw std::runtime_error("the template knows no role unknown");
      out.text += "<" + role + ">";
      const std::size_t begin = out.text.size();
      const auto content = message.find("content");
      if (content != message.end())
        out.text += content->is_string() ? content->get<std::string>() : content->dump();
      out.text += "<end>";
      if (role == "assistant") out.assistant.emplace_back(begin, out.text.size());
    }
    return out;
  }
};

}  // namespace mgpu::tests
