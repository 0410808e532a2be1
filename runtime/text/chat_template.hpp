#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace mgpu::text {

namespace jinja {
struct Limits;
struct Result;
struct Template;
class Value;
}  // namespace jinja

struct Rendered {
  std::string text;
  // Byte spans [begin, end) of the text between {% generation %} and {% endgeneration %}, in order;
  // a span may be empty. There are none if a macro or a {% set %} block contains such a mark,
  // because its text may be written anywhere.
  std::vector<std::pair<std::size_t, std::size_t>> assistant;
};

// A model's chat template. It renders the same text, byte for byte, as transformers'
// apply_chat_template. Several threads may use it at once. Every error begins with "chat template
// line L: ".
class ChatTemplate {
 public:
  using Json = nlohmann::ordered_json;

  // A token with an empty text is undefined in the template.
  struct Tokens {
    std::string bos, eos, pad, unk;
  };

  ChatTemplate(std::string source, Tokens tokens);
  ChatTemplate(std::string source, Tokens tokens, const jinja::Limits& limits);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  const std::string& source() const { return source_; }

  // messages: an array of {role, content, ...}. tools: an array, or null for none. extra:
  // additional variables of the template (chat_template_kwargs). They override all variables except
  // messages, tools and add_generation_prompt.
  Rendered render(const Json& messages, const Json& tools, bool add_generation_prompt,
                  const Json& extra = {}) const;

  bool marks_assistant() const;  // the template has {% generation %}

  // Also returns the spans of the assistant's text, including its end-of-turn mark. The template's
  // own marks are used if it has any. Otherwise there is a span for each assistant message, from
  // the end of the generation prompt to the end of the message. If the template writes a message
  // differently once other messages follow (without its reasoning, for example), the span covers
  // what is left of it. If a span cannot be determined, throws an error that names the message.
  Rendered render_with_assistant(const Json& messages, const Json& tools,
                                 const Json& extra = {}) const;

 private:
  // The values shared by the renderings of all prefixes of a conversation.
  struct Conversation;
  jinja::Result render_first(const Conversation& conversation, std::size_t count,
                             bool add_generation_prompt, const jinja::Value* replaced = nullptr,
                             std::size_t at = 0) const;
  std::pair<std::size_t, std::size_t> find_turn(const Conversation& conversation,
                                                const std::string& whole, std::size_t turn) const;
  std::size_t find_start(const Conversation& conversation, const std::string& whole,
                         std::size_t turn) const;

  std::string source_;
  Tokens tokens_;
  std::unique_ptr<const jinja::Limits> limits_;
  std::unique_ptr<const jinja::Template> template_;
};

}  // namespace mgpu::text
