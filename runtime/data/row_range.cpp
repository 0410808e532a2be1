#include "runtime/data/row_range.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/row.hpp"

namespace mgpu::data {

namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 53;  // doubles are exact below

[[noreturn]] void refuse(std::string_view text) {
  throw rendezvous::InputError(
      fmt::format("cannot parse the split {}; write for example train, train[:1000], "
                  "train[10%:20%] or train+test",
                  printable(text)));
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(' ');
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

struct Bound {
  std::optional<std::int64_t> value;
  bool percent = false;
};

Bound parse_bound(std::string_view text, std::string_view whole) {
  text = trimmed(text);
  Bound bound{.percent = text.ends_with('%')};
  if (bound.percent) text.remove_suffix(1);
  if (text.empty() && !bound.percent) return bound;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::int64_t most = bound.percent ? 100 : kMost;
  if (error != std::errc() || end != text.data() + text.size() || value > most || value < -most)
    refuse(whole);
  bound.value = value;
  return bound;
}

SplitPart parse_part(std::string_view text) {
  text = trimmed(text);
  const auto open = text.find('[');
  SplitPart part{.name = std::string(trimmed(text.substr(0, open)))};
  if (part.name.empty() || part.name.find_first_of(":]%") != part.name.npos) refuse(text);
  if (open == text.npos) return part;
  const auto colon = text.find(':', open);
  if (!text.ends_with(']') || colon == text.npos) refuse(text);
  const Bound from = parse_bound(text.substr(open + 1, colon - open - 1), text);
  const Bound to = parse_bound(text.substr(colon + 1, text.size() - colon - 2), text);
  if (from.value && to.value && from.percent != to.percent) {
    // `datasets` reads both as percents if one is.
    if (std::abs(*from.value) > 100 || std::abs(*to.value) > 100) refuse(text);
  }
  part.range = {.from = from.value, .to = to.value, .percent = from.percent || to.percent};
  return part;
}

}  // namespace

std::pair<std::uint64_t, std::uint64_t> RowRange::of(std::uint64_t rows) const {
  const auto total = static_cast<std::int64_t>(rows);
  // Halves are rounded to even, as Python does.
  const auto absolute = [&](std::int64_t bound) {
    const auto value = percent ? static_cast<std::int64_t>(std::nearbyint(
                                     static_cast<double>(bound) * static_cast<double>(total) / 100))
                               : bound;
    if (value > total || value < -total)
      throw rendezvous::InputError(
          fmt::format("the split has {} rows, but its slice needs {}", rows, std::abs(value)));
    return value < 0 ? total + value : value;
  };
  const std::int64_t first = from ? absolute(*from) : 0;
  std::int64_t last = to ? absolute(*to) : total;
  if (most > 0) last = std::min(last, first + most);
  last = std::max(first, last);
  return {static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(last)};
}

std::uint64_t RowRange::row_limit() const {
  const std::int64_t first = from.value_or(0);
  if (percent || first < 0 || (to && *to < 0)) return 0;
  std::int64_t last = to.value_or(std::numeric_limits<std::int64_t>::max());
  if (most > 0) last = std::min(last, first + most);
  return last == std::numeric_limits<std::int64_t>::max() ? 0 : static_cast<std::uint64_t>(last);
}

std::vector<SplitPart> parse_split(const std::string& text) {
  std::vector<SplitPart> parts;
  std::string_view rest = text;
  while (true) {
    const auto plus = rest.find('+');
    parts.push_back(parse_part(rest.substr(0, plus)));
    if (plus == rest.npos) return parts;
    rest.remove_prefix(plus + 1);
  }
}

}  // namespace mgpu::data
