#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/text/added_tokens.hpp"

namespace mgpu::text {

// A file next to tokenizer.json.
inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";

// The contents of the files next to tokenizer.json.
struct TokenizerConfig {
  std::string bos_token, eos_token, pad_token, unk_token;
  std::string chat_template;
  std::vector<AddedToken> added_tokens;  // "added_tokens_decoder", by id
};

inline constexpr const char* kChatTemplateFile = "chat_template.jinja";

// The member of a role, such as eos_token. Throws std::out_of_range for other names.
std::string& token_of_role(TokenizerConfig& config, const std::string& role);

// Writes the token of a role into the files that name the tokens of roles.
void write_token_of_role(std::map<std::string, std::string>& files, const std::string& role,
                         const std::string& token);

// Reads the files of a folder, given by name; any may be missing. Errors contain the file's name.
TokenizerConfig read_tokenizer_config(const std::map<std::string, std::string>& files);

}  // namespace mgpu::text
