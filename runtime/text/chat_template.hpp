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
  // Byte spans [begin, end) of what stands between {% generation %} and {% endgeneration %}, in
  // order; one may be empty. None where a macro or a {% set %} block holds such a mark, since its
  // text may end up anywhere.
  std::vector<std::pair<std::size_t, std::size_t>> assistant;
};

// A model's chat template: what transformers' apply_chat_template renders, byte for byte. May be
// used by several threads at once. Errors begin "chat template line L: ".
class ChatTemplate {
 public:
  using Json = nlohmann::ordered_json;

  // A token without text is undefined in the template.
  struct Tokens {
    std::string bos, eos, pad, unk;
  };

  ChatTemplate(std::string source, Tokens tokens);
  ChatTemplate(std::string source, Tokens tokens, const jinja::Limits& limits);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  const std::string& source() const { return source_; }

  // messages: an array of {role, content, ...}; tools: an array, or null for none; extra: further
  // variables of the template (chat_template_kwargs), which win over all others but messages,
  // tools and add_generation_prompt.
  Rendered render(const Json& messages, const Json& tools, bool add_generation_prompt,
                  const Json& extra = {}) const;

  bool marks_assistant() const;  // the template has {% generation %}

  // The spans of what the assistant says, its end-of-turn mark included: the template's own marks;
  // without marks each assistant message's, from the end of the generation prompt before it to
  // where the message ends. A message that the template shows differently once others follow it
  // (with its reasoning taken out, say) counts with what is left of it. Throws where no span can
  // be told, and names the message.
  Rendered render_with_assistant(const Json& messages, const Json& tools,
                                 const Json& extra = {}) const;

 private:
  // What stays the same from one prefix of a conversation to the next.
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
