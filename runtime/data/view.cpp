#include "runtime/data/view.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

namespace mgpu::data {

namespace {

constexpr std::size_t kRanges = 12;
constexpr std::size_t kWidestBar = 40;
constexpr std::string_view kLineFeed = "↵";

struct Kind {
  bool loss = false, special = false;

  bool operator==(const Kind&) const = default;
};

// The first token is never predicted.
bool has_loss(const Sequence& sequence, std::size_t at) {
  return at > 0 && sequence.label(at) != kNoTarget;
}

// Line feeds stay; everything else that could change the terminal is escaped.
std::string shown_text(std::string_view text) {
  std::string out;
  while (true) {
    const auto end = text.find('\n');
    out += printable(text.substr(0, end), std::string::npos);
    if (end == text.npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

// A line feed at the end is written after the marks. If it has a loss it could not be seen there.
std::string shown_part(std::string_view text, const Kind& kind, bool colour) {
  const bool ends_line = text.ends_with('\n');
  if (ends_line) text.remove_suffix(1);
  auto shown = shown_text(text);
  if (ends_line && kind.loss) shown += kLineFeed;
  const char* const style = kind.loss ? (kind.special ? "1;32" : "32") : (kind.special ? "1" : "2");
  if (colour)
    shown = fmt::format("\x1b[{}m{}\x1b[0m", style, shown);
  else if (kind.loss)
    shown = fmt::format("⟦{}⟧", shown);
  return ends_line ? shown + '\n' : shown;
}

// 1, 2 or 5 times a power of ten, so that at most kRanges ranges are needed.
std::uint32_t range_size(std::uint32_t longest) {
  for (std::uint64_t power = 1;; power *= 10)
    for (const std::uint64_t digit : {1, 2, 5})
      if (digit * power * kRanges >= longest) return static_cast<std::uint32_t>(digit * power);
}

}  // namespace

std::string shown_example(const Sequence& sequence, const Encoder& encoder, bool colour) {
  const auto kind_of = [&](std::size_t at) {
    return Kind{has_loss(sequence, at), colour && encoder.special(sequence.ids[at])};
  };
  std::string out, before;
  for (std::size_t begin = 0, end = 0; begin < sequence.ids.size(); begin = end) {
    const Kind kind = kind_of(begin);
    while (end < sequence.ids.size() && kind_of(end) == kind) ++end;
    // Some tokenizers strip the first space of a text. That of a part is not the first of the text.
    auto all = encoder.decode(sequence.ids.first(end));
    const auto text = all.starts_with(before)
                          ? all.substr(before.size())
                          : encoder.decode(sequence.ids.subspan(begin, end - begin));
    before = std::move(all);
    out += shown_part(text, kind, colour);
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<std::string> histogram(std::span<const std::uint32_t> lengths) {
  if (lengths.empty()) return {};
  const auto longest = *std::max_element(lengths.begin(), lengths.end());
  const auto size = range_size(longest);
  std::vector<std::size_t> counts((longest + size - 1) / size);
  for (const auto length : lengths) ++counts[(std::max(length, 1U) - 1) / size];
  const auto most = *std::max_element(counts.begin(), counts.end());
  const auto digits = fmt::format("{}", longest).size();
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto bar = (counts[i] * kWidestBar + most - 1) / most;
    lines.push_back(fmt::format("{:>{}}-{:<{}}  {:>{}}{}{}", i * size + 1, digits,
                                std::min<std::size_t>((i + 1) * size, longest), digits, counts[i],
                                fmt::format("{}", most).size(), bar > 0 ? "  " : "",
                                std::string(bar, '#')));
  }
  return lines;
}

}  // namespace mgpu::data
