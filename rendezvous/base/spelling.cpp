#include "rendezvous/base/spelling.hpp"

#include <algorithm>
#include <numeric>

#include "rendezvous/base/printable.hpp"

namespace mgpu::rendezvous {
namespace {

constexpr std::size_t kLongestWord = 64;  // no option is that long, and the work is quadratic

// The number of characters inserted, deleted, changed, or swapped with their neighbour.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = last[j - 1] + (a[i - 1] != b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string shown(std::string_view text, std::size_t limit) {
  if (text.empty()) return "''";
  std::size_t end = std::min(text.size(), limit);
  if (end < text.size())
    while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  const std::string line = printable(text.substr(0, end));
  return end < text.size() ? line + "..." : line;
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  if (word.empty() || word.size() > kLongestWord) return {};
  std::size_t best = 1 + std::max<std::size_t>(1, word.size() / 3);
  std::string found;
  for (const auto& candidate : known) {
    const std::size_t shorter = std::min(word.size(), candidate.size());
    const std::size_t longer = std::max(word.size(), candidate.size());
    if (longer - shorter >= best) continue;  // at least this many characters differ
    const auto distance = edit_distance(word, candidate);
    if (distance >= best || distance >= candidate.size()) continue;
    best = distance;
    found = candidate;
  }
  return found;
}

}  // namespace mgpu::rendezvous
