#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/chat_conversation.hpp"

namespace mgpu::text {

namespace {

using jinja::Budget;
using jinja::Dict;
using jinja::Value;

// A text that no chat contains, so the template's output does not begin or end with part of it by
// chance.
constexpr const char* kPlaceholder = "\x01\x02stand-in\x02\x01";

struct NoSpan : rendezvous::InputError {
  using InputError::InputError;
};

[[noreturn]] void no_span(std::size_t turn, std::string_view why) {
  throw NoSpan(
      fmt::format("chat template: cannot locate assistant message {} in the text: {}; mark the "
                  "assistant's text with {{% generation %}} in the template",
                  turn + 1, why));
}

// A message with placeholder content.
Value placeholder_message(const char* role, std::size_t work) {
  Budget budget(work);
  Dict message;
  message.set(Value("role"), Value(role), budget);
  message.set(Value("content"), Value(kPlaceholder), budget);
  return Value(std::move(message));
}

bool is_assistant(const Value& message) {
  const Value* role = message.dict()->find("role");
  return role && role->text() && role->text()->text == "assistant";
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

std::size_t common_suffix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first -
                                  a.rbegin());
}

// The length of the longest suffix of `tail` that is a prefix of `text` (Knuth-Morris-Pratt, linear
// time).
std::size_t longest_overlap(std::string_view tail, std::string_view text) {
  text = text.substr(0, tail.size());
  std::vector<std::size_t> shorter(text.size() + 1, 0);
  for (std::size_t i = 1, matched = 0; i < text.size(); ++i) {
    while (matched > 0 && text[i] != text[matched]) matched = shorter[matched];
    if (text[i] == text[matched]) ++matched;
    shorter[i + 1] = matched;
  }
  std::size_t matched = 0;
  for (const char c : tail) {
    while (matched > 0 && (matched == text.size() || text[matched] != c))
      matched = shorter[matched];
    if (matched < text.size() && text[matched] == c) ++matched;
  }
  return matched;
}

}  // namespace

// Finds where the assistant's text begins in the whole conversation. Usually that is the end of the
// generation prompt. Otherwise it is the end of the header that the template writes for an
// assistant message with placeholder content: the generation prompt may be longer than the header
// of an earlier turn (when it opens the reasoning, for example), or may lack text that only a first
// message gets.
std::size_t ChatTemplate::find_start(const Conversation& conversation, const std::string& whole,
                                     std::size_t turn) const {
  const std::string prompt = render_first(conversation, turn, true).text;
  if (whole.starts_with(prompt)) return prompt.size();
  const std::string before = render_first(conversation, turn, false).text;
  if (!whole.starts_with(before)) no_span(turn, "the template changes the text before it");
  if (!prompt.starts_with(before))
    no_span(turn, "the generation prompt changes the text before it");

  const std::string_view generation_prompt = std::string_view(prompt).substr(before.size());
  const auto header_of = [&](const char* role) {
    const Value other = placeholder_message(role, limits_->work);
    const std::string text =
        render_first(conversation, conversation.messages.size(), false, &other, turn).text;
    const std::size_t content_begin = text.find(kPlaceholder);
    if (content_begin == text.npos || !text.starts_with(before)) return std::string();
    return text.substr(before.size(), content_begin - before.size());
  };
  const std::string header = header_of("assistant");
  std::size_t length = common_prefix(header, generation_prompt);
  if (header.ends_with(generation_prompt))
    length = header.size();
  else if (length < header.size() && length <= common_prefix(header_of("user"), generation_prompt))
    length = 0;  // it is only the beginning that all turns share
  const std::string_view rest = std::string_view(whole).substr(before.size());
  if (length == 0 || !rest.starts_with(std::string_view(header).substr(0, length)))
    no_span(turn, "it does not begin with the generation prompt");
  return before.size() + length;
}

// Finds where the turn ends. Rendered with the turn as the last message, the text ends with the
// turn; the overlap of its end with the whole conversation gives the turn's length.
std::pair<std::size_t, std::size_t> ChatTemplate::find_turn(const Conversation& conversation,
                                                            const std::string& whole,
                                                            std::size_t turn) const {
  const std::size_t begin = find_start(conversation, whole, turn);
  if (turn + 1 == conversation.messages.size()) return {begin, whole.size()};
  const std::string latest = render_first(conversation, turn + 1, false).text;
  const Value placeholder = placeholder_message("assistant", limits_->work);
  const std::string other = render_first(conversation, turn + 1, false, &placeholder, turn).text;
  // The overlap must include at least what the template writes after any message content.
  const std::size_t content_begin = other.find(kPlaceholder);
  const std::size_t mark = content_begin == other.npos ? 1 : common_suffix(latest, other);
  const std::size_t length = longest_overlap(latest, std::string_view(whole).substr(begin));
  if (length == 0 || length < mark)
    no_span(turn, "the template rewrites it once other messages follow");
  return {begin, begin + length};
}

Rendered ChatTemplate::render_with_assistant(const Json& messages, const Json& tools,
                                             const Json& extra) const {
  const Conversation conversation(messages, tools, extra, tokens_, *limits_);
  const std::size_t count = conversation.messages.size();
  auto result = render_first(conversation, count, false);
  if (result.misplaced_generation)
    throw rendezvous::InputError(
        "chat template: {% generation %} inside a macro or a {% set %} block has no position in "
        "the text; move it to where the text is written");
  Rendered rendered{std::move(result.text), std::move(result.generation)};
  if (marks_assistant()) return rendered;
  for (std::size_t turn = 0; turn < count; ++turn) {
    if (!is_assistant(conversation.messages[turn])) continue;
    try {
      rendered.assistant.push_back(find_turn(conversation, rendered.text, turn));
    } catch (const NoSpan&) {
      throw;
    } catch (const std::runtime_error& error) {
      no_span(turn, fmt::format("part of the conversation cannot be rendered ({})", error.what()));
    }
  }
  return rendered;
}

}  // namespace mgpu::text
