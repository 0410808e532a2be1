#include "runtime/rewards/math/text_scan.hpp"

#include <algorithm>
#include <map>

#include "runtime/rewards/math/character_class.hpp"

namespace mgpu::rewards::math {
namespace {

constexpr std::size_t kMostParts = 6;
constexpr std::size_t kCloseBoxes = 10;  // bytes between boxes that belong together
constexpr std::size_t kNearBoxes = 70;   // the same when a comma or word joins them

bool escaped(std::string_view text, std::size_t at) {
  return at > 0 && text[at - 1] == '\\';
}

// Finds closing delimiters. A failed search is remembered and not repeated, so that a text with
// only opening delimiters takes no extra time.
class Closings {
 public:
  explicit Closings(std::string_view text) : text_(text) {}

  // From the opening delimiter at `begin` to the closing one; nothing if there is no content.
  std::optional<Span> enclosed(std::size_t begin, std::size_t opening, std::string_view closing,
                               bool one_line) {
    const auto inside = begin + opening;
    auto& vain = vain_[closing];
    if (inside < vain) return std::nullopt;
    const auto line = one_line ? text_.find('\n', inside) : text_.npos;
    const auto room = text_.substr(0, line);
    auto end = room.find(closing, inside);
    while (end != room.npos && escaped(text_, end)) end = room.find(closing, end + 1);
    if (end == room.npos) vain = room.size();
    if (end == room.npos || end == inside) return std::nullopt;
    return Span{begin, end + closing.size(), {std::string(text_.substr(inside, end - inside))}};
  }

 private:
  std::string_view text_;
  std::map<std::string_view, std::size_t> vain_;
};

std::size_t behind_number_group(std::string_view text, std::size_t at) {
  if (at >= text.size() || text[at] != '{') return text.npos;
  std::size_t i = at + 1;
  if (i < text.size() && text[i] == '-') ++i;
  const auto first = i;
  while (i < text.size() &&
         (is_digit(text[i]) || (i > first && (text[i] == '.' || text[i] == ','))))
    ++i;
  return i > first && i < text.size() && text[i] == '}' ? i + 1 : text.npos;
}

std::optional<Span> lone_fraction(std::string_view text, std::size_t begin) {
  const std::size_t sign = text[begin] == '-' ? 1 : 0;
  if (!text.substr(begin + sign).starts_with("\\frac{")) return std::nullopt;
  const auto middle = behind_number_group(text, begin + sign + 5);
  const auto end = middle == text.npos ? middle : behind_number_group(text, middle);
  if (end == text.npos) return std::nullopt;
  return Span{begin, end, {std::string(text.substr(begin, end - begin))}, false};
}

std::optional<Span> span_at(std::string_view text, std::size_t at, Closings& closings) {
  const auto rest = text.substr(at);
  if (rest.starts_with("$$") && !escaped(text, at)) return closings.enclosed(at, 2, "$$", false);
  if (rest.starts_with("\\[") && !escaped(text, at)) return closings.enclosed(at, 2, "\\]", false);
  if (rest.starts_with("\\(") && !escaped(text, at)) return closings.enclosed(at, 2, "\\)", true);
  if (rest.starts_with('$') && !escaped(text, at) && !(at > 0 && is_digit(text[at - 1])))
    return closings.enclosed(at, 1, "$", true);
  if (rest.starts_with('\\') || rest.starts_with('-')) return lone_fraction(text, at);
  if (rest.starts_with('[') && at > 0 && is_blank(text[at - 1])) {
    const auto end = rest.find_first_of("[]\n", 1);
    if (end != rest.npos && end > 1 && rest[end] == ']' && end + 1 < rest.size() &&
        is_blank(rest[end + 1]))
      return Span{at, at + end + 2, {std::string(rest.substr(1, end - 1))}, false};
  }
  return std::nullopt;
}

// The position after ", and" and similar; npos if nothing joins.
std::size_t behind_joint(std::string_view text, std::size_t at) {
  at = skip_blanks(text, at);
  const auto rest = text.substr(at);
  for (const std::string_view joint : {",and", ",or", ", and", ", or", "and", "or", ","})
    if (rest.starts_with(joint)) return skip_blanks(text, at + joint.size());
  return text.npos;
}

bool joins(std::string_view between) {
  if (between.find(',') != between.npos || between.find(';') != between.npos) return true;
  for (const std::string_view word : {"and", "or"})
    for (auto at = between.find(word); at != between.npos; at = between.find(word, at + 1))
      if ((at == 0 || !is_letter(between[at - 1])) &&
          (at + word.size() == between.size() || !is_letter(between[at + word.size()])))
        return true;
  return false;
}

struct Box {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::string inside{};
};

// For each position the closing brace of the brace that opens there; 0 if none opens or it is not
// closed.
std::vector<std::size_t> closing_braces(std::string_view text) {
  std::vector<std::size_t> closing(text.size(), 0);
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') open.push_back(i);
    if (text[i] != '}' || open.empty()) continue;
    closing[open.back()] = i;
    open.pop_back();
  }
  return closing;
}

// The outermost closed boxes, left to right.
std::vector<Box> boxes(std::string_view text) {
  std::vector<Box> found;
  auto at = text.find("\\boxed");
  if (at == text.npos) return found;
  const auto closing = closing_braces(text);
  while (at != text.npos) {
    const auto open = skip_blanks(text, at + 6);
    if (open >= text.size() || closing[open] == 0) {  // not closed: a box in it may be
      at = text.find("\\boxed", at + 6);
      continue;
    }
    auto inside = text.substr(open + 1, closing[open] - open - 1);
    while (!inside.empty() && is_blank(inside.front())) inside.remove_prefix(1);
    while (!inside.empty() && is_blank(inside.back())) inside.remove_suffix(1);
    found.push_back({at, closing[open] + 1, std::string(inside)});
    at = text.find("\\boxed", closing[open]);
  }
  return found;
}

// All boxes in each part of a span.
Span inner_boxes(const Span& span) {
  Span inner{span.begin, span.end, {}, span.percent};
  for (const auto& part : span.parts) {
    std::string joined;
    std::string last;
    for (const auto& box : boxes(part)) {
      if (!joined.empty() && box.inside == last) continue;
      joined += (joined.empty() ? "" : ",") + box.inside;
      last = box.inside;
    }
    if (!joined.empty()) inner.parts.push_back(std::move(joined));
  }
  return inner;
}

}  // namespace

std::size_t behind_percent(std::string_view text, std::size_t at, bool& found) {
  const auto begin = skip_blanks(text, at);
  const auto rest = text.substr(begin);
  for (const std::string_view sign :
       {"\\%", "%", "percentage", "Percentage", "percent", "Percent", "pct", "Pct"})
    if (rest.starts_with(sign)) {
      found = true;
      return begin + sign.size();
    }
  return at;
}

std::vector<Span> latex_spans(std::string_view text) {
  std::vector<Span> spans;
  Closings closings(text);
  std::size_t at = 0;
  while (at < text.size()) {
    auto span = span_at(text, at, closings);
    if (!span) {
      ++at;
      continue;
    }
    span->end = behind_percent(text, span->end, span->percent);
    while (span->parts.size() < kMostParts) {
      const auto next = behind_joint(text, span->end);
      if (next == text.npos || next >= text.size()) break;
      auto more = span_at(text, next, closings);
      if (!more) break;
      span->parts.push_back(std::move(more->parts[0]));
      bool percent = false;
      span->end = behind_percent(text, more->end, percent);
    }
    at = span->end;
    spans.push_back(std::move(*span));
  }
  return spans;
}

std::optional<Span> boxed_span(std::string_view text, const std::vector<Span>& latex) {
  const auto all = boxes(text);
  if (all.empty()) return std::nullopt;
  // The last box is within $..$ and no braces follow: the boxes of that span are the result.
  for (const auto& span : latex)
    if (span.begin <= all.back().begin && all.back().end <= span.end &&
        span.end > text.find_last_of('}'))
      return inner_boxes(span);
  std::vector<std::string> parts = {all.back().inside};
  for (std::size_t i = all.size() - 1; i-- > 0 && parts.size() < kMostParts;) {
    const auto between = text.substr(all[i].end, all[i + 1].begin - all[i].end);
    const bool differs = all[i].inside != parts.back();
    if (between.size() >= kCloseBoxes &&
        !(differs && between.size() < kNearBoxes && joins(between)))
      break;
    if (differs) parts.push_back(all[i].inside);
  }
  std::string joined;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    joined += (joined.empty() ? "" : ",") + *part;
  return Span{all.back().begin, all.back().end, {std::move(joined)}, false};
}

std::vector<std::size_t> find_words(std::string_view text, std::string_view words) {
  std::vector<std::size_t> found;
  const auto same = [](char a, char b) { return a == b || (is_letter(a) && (a | 32) == b); };
  for (auto at = std::search(text.begin(), text.end(), words.begin(), words.end(), same);
       at != text.end(); at = std::search(at + 1, text.end(), words.begin(), words.end(), same))
    found.push_back(static_cast<std::size_t>(at - text.begin()));
  return found;
}

}  // namespace mgpu::rewards::math
