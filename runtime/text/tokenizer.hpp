#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/post_processor.hpp"

namespace mgpu::text {

// A Hugging Face tokenizer (BPE or Unigram) with the same ids and the same text as the original.
// Loading a file with an unsupported feature throws an error that names it. "truncation" and
// "padding" of the file are not applied, and transformers does not apply them either.
//
// Any number of threads may call const functions at once.
class Tokenizer {
 public:
  // Reads tokenizer.json and, if they exist, tokenizer_config.json, special_tokens_map.json and
  // chat_template.jinja.
  static Tokenizer load(const std::filesystem::path& folder);
  static void require_folder(const std::filesystem::path& folder);  // throws if there is none
  static Tokenizer parse(std::string_view tokenizer_json,
                         std::string_view tokenizer_config_json = {});

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Throws for text that is not UTF-8; the message has the position of the byte.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens) const;
  // The ids of a pair of texts, with the special tokens for pairs. If they are more than `longest`,
  // the longer text is cut at its end, then both, as transformers does with truncation=True; then
  // `cut` is set. Throws as encode, and if the tokenizer does not support pairs.
  struct Pair {
    PairIds both;
    bool cut = false;
  };
  Pair encode_pair(std::string_view first, std::string_view second, std::size_t longest) const;
  // Unknown ids are left out. Bytes that are not valid UTF-8 become U+FFFD.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const;

  std::optional<std::int32_t> id_of(std::string_view token) const;
  const std::string& token_of(std::int32_t id) const;  // throws if the id is unknown
  std::int32_t size() const;                           // highest id + 1, including added tokens
  bool special(std::int32_t id) const;

  // The special tokens named by tokenizer_config.json, else by special_tokens_map.json; empty if
  // none. There is no id if there is no such token or it is not in the vocabulary.
  const std::string& bos_token() const;
  const std::string& eos_token() const;
  const std::string& pad_token() const;
  const std::string& unk_token() const;
  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;
  std::optional<std::int32_t> pad_id() const;
  std::optional<std::int32_t> unk_id() const;

  // chat_template.jinja, else the "chat_template" of tokenizer_config.json (if there are several,
  // the one named "default"); empty if there is none.
  const std::string& chat_template() const;

  // Adds these texts as tokens. Existing added tokens stay unchanged, texts in the vocabulary keep
  // their id, and others get the next free ids.
  void add_tokens(const std::vector<std::string>& tokens, bool special);

  // Makes a token the one of a role, such as eos_token. Requires: id_of(token) has an id.
  void set_special_token(const std::string& role, const std::string& token);
  void set_chat_template(const std::string& source);

  // Writes files(). Files that were not read are not written.
  void save(const std::filesystem::path& folder) const;
  // The files by name, byte for byte as they were read, with added tokens appended. Those that
  // set_special_token changes are written anew.
  const std::map<std::string, std::string>& files() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  static Tokenizer from_files(std::map<std::string, std::string> files);

  std::unique_ptr<Parts> parts_;
};

}  // namespace mgpu::text
