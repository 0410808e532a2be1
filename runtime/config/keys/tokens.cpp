// The keys of tokens and chat templates.

#include <array>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

using C = TrainConfig;

constexpr std::array kRoles{"bos_token", "eos_token", "pad_token", "unk_token"};

void set_role(C& c, const std::string& role, const YamlNode& value) {
  const auto token = to_text(value);
  if (token.empty()) return;
  const auto [known, added] = c.special_tokens.emplace(role, token);
  if (!added && known->second != token)
    throw std::runtime_error(fmt::format("{} is {} and {}; keep one", role,
                                         rendezvous::shown(known->second, 32),
                                         rendezvous::shown(token, 32)));
}

void set_special_tokens(C& c, const YamlNode& value) {
  if (!value.is_map()) throw std::runtime_error("need a map, such as {eos_token: <|im_end|>}");
  for (std::size_t i = 0; i + 1 < value.items.size(); i += 2) {
    const auto& role = value.items[i].text;
    const auto& token = value.items[i + 1];
    if (is_null(token)) continue;
    if (role == "additional_special_tokens") {
      for (auto& word : to_words(token)) c.new_special_tokens.push_back(std::move(word));
    } else if (std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end()) {
      set_role(c, role, token);
    } else {
      throw std::runtime_error(fmt::format("need {} or additional_special_tokens, not {}",
                                           "bos_token, eos_token, pad_token, unk_token",
                                           rendezvous::shown(role, 32)));
    }
  }
}

template <std::size_t kRole>
void set_one(C& c, const YamlNode& value) {
  set_role(c, kRoles[kRole], value);
}

Field role_field(void (*set)(C&, const YamlNode&)) {
  return {.value = "TEXT", .set = set};
}

std::string shown_tokens(const C& c) {
  std::vector<std::string> words;
  for (const auto& [name, token] : c.special_tokens) words.push_back(name + ": " + token);
  for (const auto& token : c.new_special_tokens) words.push_back(token);
  return shown_words(words);
}

}  // namespace

// clang-format off: one paragraph per key is easier to read than one line per field.
std::vector<KeySpec> token_keys() {
  return {
      {.name = "new_tokens",
       .aliases = {"tokens", "add_tokens", "added_tokens"},
       .field = words(&C::new_tokens),
       .help = "tokens to add to the tokenizer; the embeddings are resized"},
      {.name = "new_special_tokens",
       .aliases = {"add_special_tokens", "additional_special_tokens"},
       .field = words(&C::new_special_tokens),
       .help = "the same as special tokens, which decoding leaves out"},
      {.name = "special_tokens",
       .field = {.value = "MAP", .set = set_special_tokens, .show = shown_tokens},
       .help = "special tokens of the tokenizer: bos_token, eos_token, pad_token, unk_token and "
               "additional_special_tokens (a list). A token that is not in the vocabulary is added "
               "to it. Training ends rows with eos_token and never computes with pad_token"},
      {.name = "eos_token",
       .field = role_field(set_one<1>),
       .help = "another form of special_tokens"},
      {.name = "bos_token",
       .field = role_field(set_one<0>),
       .help = "another form of special_tokens"},
      {.name = "pad_token",
       .field = role_field(set_one<2>),
       .help = "another form of special_tokens"},
      {.name = "chat_template",
       .aliases = {"chat_template_path"},
       .field = shown_as([](const C& c) { return c.chat_template; }),
       .help = "chat template instead of the tokenizer's: a name (chatml, llama2, llama3, mistral, "
               "mistral_v1, mistral_v3_tekken, mistral_v7_tekken, qwen2, qwen, qwen3, "
               "qwen3_nothink or zephyr), a Jinja file, or Jinja text; tokenizer_default: the "
               "tokenizer's; tokenizer_default_fallback_NAME: the tokenizer's, or NAME if it has "
               "none. The template is saved with the model",
       .initial = "the tokenizer's",
       .value = "NAME|FILE|TEXT"},
      {.name = "chat_template_jinja",
       .help = "Jinja file or text; another form, also beside chat_template: jinja",
       .value = "FILE|TEXT",
       .sets = "chat_template"},
      {.name = "template",
       .help = "LLaMA-Factory's name of a chat template",
       .value = "NAME",
       .sets = "chat_template"},
      {.name = "default_system_prompt",
       .aliases = {"default_system", "default_system_message"},
       .field = text(&C::default_system_prompt),
       .help = "system message of conversations that have none"},
  };
}
// clang-format on

}  // namespace mgpu::train
