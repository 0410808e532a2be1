#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <fmt/format.h>
#include "runtime/text/byte_alphabet.hpp"
#include "runtime/text/tokenizer.hpp"

namespace mgpu::tests {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

inline json added_token(int id, const std::string& content, const json& flags = json::object()) {
  json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", false}};
  token.update(flags);
  return token;
}

// A byte-level tokenizer of 256 letters and two merges: "ab" is 256, "abc" is 257.
inline json byte_level_file() {
  json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[text::byte_letters()[byte]] = byte;
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  return {
      {"version", "1.0"},
      {"added_tokens", json::array({added_token(258, "<|end|>", {{"special", true}})})},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab c"}}}}};
}

inline text::Tokenizer tokenizer(const json& file, const json& config = nullptr) {
  return text::Tokenizer::parse(file.dump(), config.is_null() ? "" : config.dump());
}

}  // namespace mgpu::tests
