#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "runtime/text/chat_conversation.hpp"

namespace mgpu::text {

namespace {

using jinja::Budget;
using jinja::Dict;
using jinja::Value;

// No chat has it, so nothing that a template writes begins or ends with part of it by chance.
constexpr const char* kStandIn = "\x01\x02stand-in\x02\x01";

[[noreturn]] void no_span(std::size_t turn, std::string_view why) {
  throw std::runtime_error(fmt::format(
      "chat template: no span can be told for assistant message {}: {}; mark what the assistant "
      "says with {{% generation %}} in the template",
      turn + 1, why));
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

// The length of the longest end of `tail` that `text` begins with (by the failure function of
// Knuth, Morris and Pratt, in linear time).
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

// Where the assistant's words begin in the whole conversation, which begins with the `before`
// bytes of the messages ahead of them. As a rule that is where the generation prompt ends. A prompt
// that goes on (to open the reasoning, say) than the earlier turns do counts as far as it goes
// with what the template writes before any words.
std::size_t ChatTemplate::find_start(const Conversation& conversation, const std::string& whole,
                                     std::size_t turn, std::size_t before) const {
  const std::string prompt = render_first(conversation, turn, true).text;
  if (whole.starts_with(prompt)) return prompt.size();
  if (prompt.compare(0, before, whole, 0, before) != 0)
    no_span(turn, "the generation prompt changes what stands before it");
  Budget budget(limits_->work);
  Dict words;
  words.set(Value("role"), Value("assistant"), budget);
  words.set(Value("content"), Value(kStandIn), budget);
  const Value stand_in(std::move(words));
  const std::string other =
      render_first(conversation, conversation.messages.size(), false, &stand_in, turn).text;
  const auto rest = [before](const std::string& text) {
    return std::string_view(text).substr(std::min(before, text.size()));
  };
  const std::size_t header = common_prefix(rest(other), rest(prompt));
  if (header == 0 || common_prefix(rest(whole), rest(prompt)) < header)
    no_span(turn, "it does not begin with the generation prompt");
  return before + header;
}

std::pair<std::size_t, std::size_t> ChatTemplate::find_turn(const Conversation& conversation,
                                                            const std::string& whole,
                                                            std::size_t turn) const {
  const std::string before = render_first(conversation, turn, false).text;
  if (!whole.starts_with(before)) no_span(turn, "the template rewrites what stands before it");
  const std::size_t begin = find_start(conversation, whole, turn, before.size());
  if (turn + 1 == conversation.messages.size()) return {begin, whole.size()};

  // What the template writes behind any words: at least that must be left of the message.
  const std::string latest = render_first(conversation, turn + 1, false).text;
  Budget budget(limits_->work);
  Dict words;
  words.set(Value("role"), Value("assistant"), budget);
  words.set(Value("content"), Value(kStandIn), budget);
  const Value stand_in(std::move(words));
  const std::string other = render_first(conversation, turn + 1, false, &stand_in, turn).text;
  const std::size_t mark = common_suffix(latest, other);
  const std::size_t longest = std::max(latest.size(), before.size()) - before.size();
  const auto tail = std::string_view(latest).substr(latest.size() - longest);
  const std::size_t length = longest_overlap(tail, std::string_view(whole).substr(begin));
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
    throw std::runtime_error(
        "chat template: a {% generation %} inside a macro or a {% set %} block has no place in the "
        "text; move it to where the text is written");
  Rendered rendered{std::move(result.text), std::move(result.generation)};
  if (marks_assistant()) return rendered;
  for (std::size_t turn = 0; turn < count; ++turn)
    if (is_assistant(conversation.messages[turn]))
      rendered.assistant.push_back(find_turn(conversation, rendered.text, turn));
  return rendered;
}

}  // namespace mgpu::text
