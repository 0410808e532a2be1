#include "runtime/rewards/math/extract.hpp"

#include <algorithm>

#include "runtime/rewards/math/character_class.hpp"
#include "runtime/rewards/math/text_scan.hpp"

namespace mgpu::rewards::math {
namespace {

// How far after the introducing words a result may be.
constexpr std::size_t kBehindFinal = 100;
constexpr std::size_t kBehindAnswer = 50;
constexpr std::size_t kBehindAnswerEquals = 100;

Statement stated(const Span& span, bool bare = false) {
  return {span.parts, span.percent, bare};
}

// The span that ends last; of several, the one that begins first.
const Span* last(const std::vector<const Span*>& spans) {
  const Span* best = nullptr;
  for (const auto* span : spans)
    if (!best || span->end > best->end || (span->end == best->end && span->begin < best->begin))
      best = span;
  return best;
}

std::vector<Span>::const_iterator from_place(const std::vector<Span>& spans, std::size_t place) {
  return std::lower_bound(spans.begin(), spans.end(), place,
                          [](const Span& span, std::size_t at) { return span.begin < at; });
}

const Span* first_within(const std::vector<Span>& spans, std::size_t from, std::size_t to) {
  const auto first = from_place(spans, from);
  return first != spans.end() && first->begin <= to ? &*first : nullptr;
}

// The last number of the line that directly follows a =, as in "answer: 2 + 3 = 5".
const Span* behind_equals(std::string_view text, const std::vector<Span>& numbers,
                          std::size_t begin, std::size_t line) {
  const auto limit = std::min(line, begin + kBehindAnswerEquals + 1);
  const Span* found = nullptr;
  for (auto span = from_place(numbers, begin); span != numbers.end() && span->begin < limit;
       ++span) {
    const auto before = text.substr(begin, span->begin + 1 - begin);
    const auto last = before.find_last_not_of(" \t");
    if (span->end <= line && last != before.npos && before[last] == '=') found = &*span;
  }
  return found;
}

// "final answer is $5$", with up to 100 bytes before the "is". `hoping` requires "I hope" after it.
const Span* behind_final_answer(std::string_view text, const std::vector<Span>& spans, bool hoping,
                                bool touching) {
  std::vector<const Span*> found;
  for (const auto at : find_words(text, "final answer")) {
    const auto begin = at + 12;
    const auto near = text.substr(0, begin + kBehindFinal + 3);  // not to the end, each time
    for (auto is = near.find("is", begin); is != near.npos; is = near.find("is", is + 1)) {
      if (!is_blank(text[is - 1])) continue;
      auto behind = is + 2;
      if (behind < text.size() && text[behind] == ':') ++behind;
      const auto where = touching ? behind : skip_blanks(text, behind);
      const auto* span = first_within(spans, behind, where);
      if (!span) continue;
      if (hoping) {
        auto hope = span->end;
        if (hope < text.size() && text[hope] == '.') ++hope;
        if (!text.substr(skip_blanks(text, hope)).starts_with("I hope") || is != begin + 1)
          continue;
      }
      found.push_back(span);
      break;
    }
  }
  return last(found);
}

const Span* behind_answer(std::string_view text, const std::vector<Span>& spans, bool colon,
                          bool numbers) {
  std::vector<const Span*> found;
  for (const auto at : find_words(text, colon ? "answer:" : "answer")) {
    const auto begin = at + (colon ? 7 : 6);
    const auto line = std::min(text.find('\n', begin), text.size());
    if (const auto* equal = numbers ? behind_equals(text, spans, begin, line) : nullptr) {
      found.push_back(equal);
      continue;
    }
    const auto* span = first_within(spans, begin, begin + kBehindAnswer);
    if (span && (!numbers || span->begin <= line)) found.push_back(span);
  }
  return last(found);
}

}  // namespace

std::optional<Statement> find_answer(std::string_view text) {
  const auto spans = latex_spans(text);
  const auto box = boxed_span(text, spans);
  const auto* hoped = behind_final_answer(text, spans, true, false);
  if (hoped && (!box || hoped->end > box->end)) return stated(*hoped);
  if (box) return stated(*box);
  if (text.find("\\boxed{") != text.npos) return std::nullopt;  // opened but never closed
  if (const auto* span = behind_final_answer(text, spans, false, false)) return stated(*span);
  for (const bool colon : {true, false})
    if (const auto* span = behind_answer(text, spans, colon, false)) return stated(*span);
  return std::nullopt;
}

std::optional<Statement> find_gold(std::string_view text) {
  const auto spans = latex_spans(text);
  const auto numbers = number_spans(text);
  const auto choose = [&](const Span* latex, const Span* number) -> std::optional<Statement> {
    if (!latex && !number) return std::nullopt;
    const bool bare = !latex || (number && last({latex, number}) == number);
    return bare ? stated(*number, true) : stated(*latex);
  };
  for (const bool hoping : {true, false}) {
    auto found = choose(behind_final_answer(text, spans, hoping, false),
                        behind_final_answer(text, numbers, hoping, true));
    const auto box = hoping ? std::nullopt : boxed_span(text, spans);
    if (box) return stated(*box);
    if (found) return found;
  }
  for (const bool colon : {true, false})
    if (auto found = choose(behind_answer(text, spans, colon, false),
                            behind_answer(text, numbers, colon, true)))
      return found;
  return choose(spans.empty() ? nullptr : &spans.back(),
                numbers.empty() ? nullptr : &numbers.back());
}

}  // namespace mgpu::rewards::math
