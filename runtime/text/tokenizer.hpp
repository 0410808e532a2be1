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

namespace mgpu::text {

// A Hugging Face tokenizer of the BPE kind: the same ids and the same text as HF's. What a file
// asks for beyond that is refused by name when it is read. "truncation" and "padding" of the file
// are not applied, as transformers does not apply them either.
//
// All const functions may be called from any number of threads at once.
class Tokenizer {
 public:
  // Reads tokenizer.json, and tokenizer_config.json, special_tokens_map.json and
  // chat_template.jinja where they are there.
  static Tokenizer load(const std::filesystem::path& folder);
  static Tokenizer parse(std::string_view tokenizer_json,
                         std::string_view tokenizer_config_json = {});

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Throws for text that is not UTF-8, naming the byte.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens) const;
  // Ids that are no token are left out; bytes that are no text become U+FFFD.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const;

  std::optional<std::int32_t> id_of(std::string_view token) const;
  const std::string& token_of(std::int32_t id) const;  // throws if the id is no token
  std::int32_t size() const;                           // highest id + 1, added tokens counted
  bool special(std::int32_t id) const;

  // The tokens that tokenizer_config.json, else special_tokens_map.json, name; empty if none. An id
  // is missing where the name is, and where the vocabulary does not know the token.
  const std::string& bos_token() const;
  const std::string& eos_token() const;
  const std::string& pad_token() const;
  const std::string& unk_token() const;
  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;
  std::optional<std::int32_t> pad_id() const;
  std::optional<std::int32_t> unk_id() const;

  // chat_template.jinja, else tokenizer_config.json's "chat_template", of several the "default";
  // empty if there is none.
  const std::string& chat_template() const;

  // Makes tokens of these texts. What is an added token already stays as it is, what the model
  // knows keeps its id, others get the next ids.
  void add_tokens(const std::vector<std::string>& tokens, bool special);

  // Writes files(); what was not read is not written.
  void save(const std::filesystem::path& folder) const;
  // The files as they were read, byte for byte, with added tokens appended: name and content.
  const std::map<std::string, std::string>& files() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  static Tokenizer from_files(std::map<std::string, std::string> files);

  std::unique_ptr<Parts> parts_;
};

}  // namespace mgpu::text
