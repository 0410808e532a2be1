#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/text/added_tokens.hpp"

namespace mgpu::text {

// What the files beside tokenizer.json say.
struct TokenizerConfig {
  std::string bos_token, eos_token, pad_token, unk_token;
  std::string chat_template;
  std::vector<AddedToken> added_tokens;  // "added_tokens_decoder", by id
};

// From the files of a folder, by name; any may be missing. Throws with the file's name.
TokenizerConfig read_tokenizer_config(const std::map<std::string, std::string>& files);

}  // namespace mgpu::text
