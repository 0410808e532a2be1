#include "runtime/data/marks.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace mgpu::data {

namespace {

using Ids = std::vector<std::int32_t>;
using IdRange = std::pair<std::size_t, std::size_t>;  // [begin, end) of the tokens

// Finds the token ranges if cutting the text at the ends of the spans does not change its encoding.
bool ranges_of_pieces(const Coder& coder, std::string_view text, const ByteSpans& spans,
                      const Ids& ids, std::vector<IdRange>& out) {
  std::size_t at = 0, token = 0;
  const auto advance = [&](std::size_t to) {
    if (to == at) return true;
    const Ids piece = coder.encode(text.substr(at, to - at));
    at = to;
    const bool fits =
        piece.size() <= ids.size() - token &&
        std::equal(piece.begin(), piece.end(), ids.begin() + static_cast<std::ptrdiff_t>(token));
    token += piece.size();
    return fits;
  };
  for (const auto& [begin, end] : spans) {
    if (!advance(begin)) return false;
    const std::size_t first = token;
    if (!advance(end)) return false;
    out.emplace_back(first, token);
  }
  return advance(text.size()) && token == ids.size();
}

// The number of bytes that the ids decode to, without an incomplete character at the end.
std::size_t decoded_size(const Coder& coder, std::span<const std::int32_t> ids) {
  const std::string text = coder.decode(ids);
  constexpr std::string_view kUnknown = "\xEF\xBF\xBD";
  std::string_view whole = text;
  while (whole.ends_with(kUnknown)) whole.remove_suffix(kUnknown.size());
  return whole.size();
}

// The length of the shortest prefix of the ids that decodes to at least `size` bytes, or with
// `beyond` to more than `size`.
std::size_t ids_until(const Coder& coder, const Ids& ids, std::size_t size, bool beyond) {
  std::size_t low = 0, high = ids.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    const std::size_t decoded = decoded_size(coder, std::span(ids).first(middle));
    if (beyond ? decoded > size : decoded >= size)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

std::vector<IdRange> ranges_by_decoding(const Coder& coder, std::string_view text,
                                        const ByteSpans& spans, const Ids& ids) {
  // Both sides of the comparison are decoded, so the tokenizer's normalization does not matter.
  const auto size_before = [&](std::size_t at) {
    return decoded_size(coder, coder.encode(text.substr(0, at)));
  };
  std::vector<IdRange> out;
  for (const auto& [begin, end] : spans) {
    if (begin == end) continue;
    const std::size_t behind_first = ids_until(coder, ids, size_before(begin), true);
    const std::size_t last = ids_until(coder, ids, size_before(end), false);
    if (behind_first > 0) out.emplace_back(behind_first - 1, last);
  }
  return out;
}

}  // namespace

MarkedIds encode_marked(const Coder& coder, std::string_view text, const ByteSpans& spans) {
  MarkedIds out{.ids = coder.encode(text)};
  out.marked.assign(out.ids.size(), false);
  std::vector<IdRange> ranges;
  if (!ranges_of_pieces(coder, text, spans, out.ids, ranges))
    ranges = ranges_by_decoding(coder, text, spans, out.ids);
  for (const auto& [begin, end] : ranges)
    for (std::size_t i = begin; i < end; ++i) out.marked[i] = true;
  return out;
}

}  // namespace mgpu::data
