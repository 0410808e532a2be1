#include "launcher/options/hostlist.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "launcher/options/options.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

using rendezvous::shown;
namespace {

constexpr std::size_t kLongestName = 255;
constexpr std::size_t kMostDigits = 9;

bool all_digits(std::string_view text) {
  return !text.empty() && text.size() <= kMostDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class Expansion {
 public:
  explicit Expansion(std::string_view list) : list_(list) {}

  std::vector<std::string> run() {
    std::size_t begin = 0;
    for (std::size_t at = 0, depth = 0; at <= list_.size(); ++at) {
      const char c = at < list_.size() ? list_[at] : ',';
      if (c == '[' && depth++ > 0) fail("nested brackets");
      if (c == ']' && depth-- == 0) fail("a ] without a [");
      if (at == list_.size() && depth > 0) fail("a [ without a ]");
      if (c != ',' || depth > 0) continue;
      add_item(list_.substr(begin, at - begin));
      begin = at + 1;
    }
    return std::move(hosts_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw UsageError(fmt::format("{} is not a valid host list: {}", shown(list_), why));
  }

  void add_item(std::string_view item) {
    if (item.empty()) fail("empty host name");
    std::vector<std::vector<std::string>> parts;  // a name has one word of each
    std::size_t count = 1;
    while (!item.empty()) {
      const auto open = std::min(item.find('['), item.size());
      if (open > 0) parts.push_back({std::string(item.substr(0, open))});
      item.remove_prefix(open);
      if (item.empty()) break;
      const auto close = item.find(']');
      parts.push_back(numbers(item.substr(1, close - 1)));
      count *= parts.back().size();
      check_count(hosts_.size() + count);
      item.remove_prefix(close + 1);
      if (parts.size() > kLongestName) fail("host name too long");
    }
    check_count(hosts_.size() + count);
    for (std::size_t i = 0; i < count; ++i) hosts_.push_back(name_of(parts, i));
  }

  // Combines the words; the last part changes first.
  std::string name_of(const std::vector<std::vector<std::string>>& parts, std::size_t index) const {
    std::vector<const std::string*> words(parts.size());
    for (std::size_t i = parts.size(); i-- > 0; index /= parts[i].size())
      words[i] = &parts[i][index % parts[i].size()];
    std::string name;
    for (const std::string* word : words) {
      name += *word;
      if (name.size() > kLongestName) fail("host name too long");
    }
    return name;
  }

  std::vector<std::string> numbers(std::string_view ranges) const {
    std::vector<std::string> found;
    for (;;) {
      const auto end = std::min(ranges.find(','), ranges.size());
      add_range(found, ranges.substr(0, end));
      if (end == ranges.size()) return found;
      ranges.remove_prefix(end + 1);
    }
  }

  void add_range(std::vector<std::string>& found, std::string_view range) const {
    const auto dash = std::min(range.find('-'), range.size());
    const auto first = range.substr(0, dash);
    const auto last = dash == range.size() ? first : range.substr(dash + 1);
    if (!all_digits(first) || !all_digits(last)) fail("need numbers such as 1-4 in brackets");
    std::size_t from = 0, to = 0;
    std::from_chars(first.data(), first.data() + first.size(), from);
    std::from_chars(last.data(), last.data() + last.size(), to);
    if (from > to) fail(fmt::format("range {} ends before it begins", range));
    check_count(found.size() + (to - from) + 1);
    for (; from <= to; ++from) found.push_back(fmt::format("{:0{}}", from, first.size()));
  }

  void check_count(std::size_t hosts) const {
    if (hosts > kMostNodes) fail(fmt::format("it expands to more than {} hosts", kMostNodes));
  }

  std::string_view list_;
  std::vector<std::string> hosts_;
};

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view list) {
  return Expansion(list).run();
}

}  // namespace mgpu::launcher
