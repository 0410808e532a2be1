#include "runtime/text/chat_template.hpp"

#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/chat_conversation.hpp"
#include "runtime/text/jinja/parser.hpp"

namespace mgpu::text {

namespace {

using jinja::Budget;
using jinja::Value;

std::vector<Value> messages_of(const ChatTemplate::Json& messages, Budget& budget) {
  if (!messages.is_array())
    throw rendezvous::InputError(
        fmt::format("chat messages must be a JSON array, not {}", messages.type_name()));
  std::vector<Value> all;
  for (const auto& message : messages) {
    if (!message.is_object())
      throw rendezvous::InputError(fmt::format("chat message {} must be a JSON object, not {}",
                                               all.size() + 1, message.type_name()));
    all.push_back(from_json(message, budget));
  }
  return all;
}

}  // namespace

ChatTemplate::Conversation::Conversation(const Json& messages_json, const Json& tools_json,
                                         const Json& extra, const Tokens& tokens,
                                         const jinja::Limits& limits) {
  Budget budget(limits.work);
  if (!tools_json.is_null() && !tools_json.is_array())
    throw rendezvous::InputError(
        fmt::format("tools must be a JSON array or null, not {}", tools_json.type_name()));
  if (!extra.is_null() && !extra.is_object())
    throw rendezvous::InputError(
        fmt::format("chat_template_kwargs must be a JSON object, not {}", extra.type_name()));
  try {
    messages = messages_of(messages_json, budget);
    tools = from_json(tools_json, budget);
    for (const auto& [name, token] :
         {std::pair{"bos_token", &tokens.bos}, std::pair{"eos_token", &tokens.eos},
          std::pair{"pad_token", &tokens.pad}, std::pair{"unk_token", &tokens.unk}})
      if (!token->empty()) variables.emplace_back(name, Value(*token));
    variables.emplace_back("documents", Value());
    for (const auto& [name, value] : extra.items()) set(name, from_json(value, budget));
  } catch (const jinja::Failure& failure) {
    throw rendezvous::InputError(fmt::format("chat messages: {}", failure.what()));
  }
}

void ChatTemplate::Conversation::set(const std::string& name, Value value) {
  for (const char* own : {"messages", "tools", "add_generation_prompt"})
    if (name == own)
      throw rendezvous::InputError(fmt::format("'{}' cannot be set by chat_template_kwargs", name));
  for (auto& [known, value_of_name] : variables) {
    if (known != name) continue;
    value_of_name = std::move(value);
    return;
  }
  variables.emplace_back(name, std::move(value));
}

ChatTemplate::ChatTemplate(std::string source, Tokens tokens)
    : ChatTemplate(std::move(source), std::move(tokens), jinja::Limits{}) {}

ChatTemplate::ChatTemplate(std::string source, Tokens tokens, const jinja::Limits& limits)
    : source_(std::move(source)),
      tokens_(std::move(tokens)),
      limits_(std::make_unique<const jinja::Limits>(limits)),
      template_(std::make_unique<const jinja::Template>(jinja::parse_template(source_))) {}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

bool ChatTemplate::marks_assistant() const {
  return template_->has_generation;
}

jinja::Result ChatTemplate::render_first(const Conversation& conversation, std::size_t count,
                                         bool add_generation_prompt, const Value* replaced,
                                         std::size_t at) const {
  Budget budget(limits_->work);
  const auto begin = conversation.messages.begin();
  std::vector<Value> messages(begin, begin + static_cast<std::ptrdiff_t>(count));
  if (replaced) messages.at(at) = *replaced;
  std::vector<std::pair<std::string_view, Value>> variables;
  for (const auto& [name, value] : conversation.variables) variables.emplace_back(name, value);
  variables.emplace_back("messages", Value::list(std::move(messages), budget));
  variables.emplace_back("tools", conversation.tools);
  variables.emplace_back("add_generation_prompt", Value(add_generation_prompt));
  jinja::Interpreter interpreter(*template_, *limits_);
  return interpreter.render(std::move(variables));
}

Rendered ChatTemplate::render(const Json& messages, const Json& tools, bool add_generation_prompt,
                              const Json& extra) const {
  const Conversation conversation(messages, tools, extra, tokens_, *limits_);
  auto result = render_first(conversation, conversation.messages.size(), add_generation_prompt);
  if (result.misplaced_generation) result.generation.clear();
  return {std::move(result.text), std::move(result.generation)};
}

}  // namespace mgpu::text
