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

struct NoSpan : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void no_span(std::size_t turn, std::string_view why) {
  throw NoSpan(fmt::format(
      "chat template: no span can be told for assistant message {}: {}; mark what the assistant "
      "says with {{% generation %}} in the template",
      turn + 1, why));
}

// A message that says something else.
Value stand_in(const char* role, std::size_t work) {
  Budget budget(work);
  Dict message;
  message.set(Value("role"), Value(role), budget);
  message.set(Value("content"), Value(kStandIn), budget);
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

// Where the assistant's words begin in the whole conversation. As a rule that is where the
// generation prompt ends. Else it is where the header ends that the template writes for an
// assistant who says something else there: a prompt may go on (to open the reasoning, say) where
// earlier turns do not, and it may lack what only a first message gets.
std::size_t ChatTemplate::find_start(const Conversation& conversation, const std::string& whole,
                                     std::size_t turn) const {
  const std::string prompt = render_first(conversation, turn, true).text;
  if (whole.starts_with(prompt)) return prompt.size();
  const std::string before = render_first(conversation, turn, false).text;
  if (!whole.starts_with(before)) no_span(turn, "the template rewrites what stands before it");
  if (!prompt.starts_with(before))
    no_span(turn, "the generation prompt changes what stands before it");

  const std::string_view asked = std::string_view(prompt).substr(before.size());
  const auto header_of = [&](const char* role) {
    const Value other = stand_in(role, limits_->work);
    const std::string text =
        render_first(conversation, conversation.messages.size(), false, &other, turn).text;
    const std::size_t words = text.find(kStandIn);
    if (words == text.npos || !text.starts_with(before)) return std::string();
    return text.substr(before.size(), words - before.size());
  };
  const std::string header = header_of("assistant");
  std::size_t length = common_prefix(header, asked);
  if (header.ends_with(asked))
    length = header.size();
  else if (length < header.size() && length <= common_prefix(header_of("user"), asked))
    length = 0;  // no more than any turn begins with
  const std::string_view rest = std::string_view(whole).substr(before.size());
  if (length == 0 || !rest.starts_with(std::string_view(header).substr(0, length)))
    no_span(turn, "it does not begin with the generation prompt");
  return before.size() + length;
}

// What the template writes for the messages up to the turn, as the turn's last, ends as the turn
// does in the whole conversation; how much of it is there again tells where the turn ends.
std::pair<std::size_t, std::size_t> ChatTemplate::find_turn(const Conversation& conversation,
                                                            const std::string& whole,
                                                            std::size_t turn) const {
  const std::size_t begin = find_start(conversation, whole, turn);
  if (turn + 1 == conversation.messages.size()) return {begin, whole.size()};
  const std::string latest = render_first(conversation, turn + 1, false).text;
  const Value other_words = stand_in("assistant", limits_->work);
  const std::string other = render_first(conversation, turn + 1, false, &other_words, turn).text;
  // At least what the template writes behind any words must be left of the message.
  const std::size_t words = other.find(kStandIn);
  const std::size_t mark = words == other.npos ? 1 : common_suffix(latest, other);
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
    throw std::runtime_error(
        "chat template: a {% generation %} inside a macro or a {% set %} block has no place in the "
        "text; move it to where the text is written");
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
