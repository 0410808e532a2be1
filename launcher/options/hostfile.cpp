#include "launcher/options/hostfile.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "launcher/options/parse_values.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

using rendezvous::shown;
namespace {

constexpr std::size_t kMostHostfileBytes = 1 << 20;
constexpr std::size_t kMostHostsInFile = 4096;
constexpr std::size_t kLongestLine = 1024;

std::vector<std::string_view> split_words(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  std::vector<std::string_view> words;
  for (;;) {
    const auto begin = line.find_first_not_of(kBlank);
    if (begin == line.npos) return words;
    line.remove_prefix(begin);
    const auto end = std::min(line.find_first_of(kBlank), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

// Whether ssh and a shell can only treat the text as a name, never as an option or syntax.
bool is_name(std::string_view text, std::string_view also) {
  return !text.empty() && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [also](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  also.find(c) != also.npos;
         });
}

class HostfileReader {
 public:
  explicit HostfileReader(const std::string& path) : path_(path) {}

  void read_line(std::string_view line) {
    ++line_;
    if (line.size() > kLongestLine)
      fail(fmt::format("the line is longer than {} bytes, the limit", kLongestLine));
    const auto words = split_words(line.substr(0, line.find('#')));
    if (words.empty()) return;
    Host host = read_host(words.front());
    std::optional<int> most;
    for (std::size_t i = 1; i < words.size(); ++i) read_value(words[i], host, most);
    if (most && host.slots.value_or(1) > *most)
      fail(fmt::format("slots={} is more than max_slots={}; lower slots", *host.slots, *most));
    add(std::move(host));
  }

  std::vector<Host> take() {
    if (hosts_.empty())
      throw UsageError(fmt::format("{}: lists no host; write one host name per line", path_));
    return std::move(hosts_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw UsageError(fmt::format("{}:{}: {}", path_, line_, why));
  }

  Host read_host(std::string_view word) const {
    Host host{.line = line_};
    if (const auto at = word.find('@'); at != word.npos) {
      if (!is_name(word.substr(0, at), "._-"))
        fail(fmt::format("{} is not a valid user name", shown(word.substr(0, at), 40)));
      host.user = word.substr(0, at);
      word.remove_prefix(at + 1);
    }
    if (std::count(word.begin(), word.end(), ':') == 1)
      fail(
          fmt::format("{}: set a port in ~/.ssh/config or --ssh-command, and the number of ranks "
                      "with slots=N",
                      shown(word, 40)));
    if (!is_name(word, "._-:%")) fail(fmt::format("{} is not a valid host name", shown(word, 40)));
    host.name = word;
    return host;
  }

  void read_value(std::string_view word, Host& host, std::optional<int>& most) const {
    const auto equals = std::min(word.find('='), word.size());
    const auto key = word.substr(0, equals);
    const auto value = word.substr(std::min(equals + 1, word.size()));
    const bool limit = key == "max_slots" || key == "max-slots";
    if (key != "slots" && !limit)
      fail(fmt::format("{} is not a known field; need slots=N", shown(word, 40)));
    try {
      (limit ? most : host.slots) = parse_whole(std::string(value), 1, kMostRanks);
    } catch (const UsageError& e) {
      fail(fmt::format("{}: {}", shown(word, 40), e.what()));
    }
  }

  void add(Host host) {
    const auto [known, is_new] = by_name_.try_emplace(host.name, Seen{hosts_.size(), host.slots});
    if (is_new) {
      if (hosts_.size() == kMostHostsInFile)
        fail(fmt::format("more than {} hosts, the limit", kMostHostsInFile));
      return hosts_.push_back(std::move(host));
    }
    Host& first = hosts_[known->second.index];
    if (host.slots || known->second.slots)
      fail(fmt::format("{} is already listed on line {}; list it once with all its slots",
                       host.name, first.line));
    first.slots = first.slots.value_or(1) + 1;
    if (*first.slots > kMostRanks)
      fail(fmt::format("{} has more than {} slots, the limit", first.name, kMostRanks));
  }

  struct Seen {
    std::size_t index;
    std::optional<int> slots;  // from slots=
  };

  std::string path_;
  int line_ = 0;
  std::vector<Host> hosts_;
  std::map<std::string, Seen> by_name_;
};

}  // namespace

std::vector<Host> parse_hostfile(const std::string& text, const std::string& path) {
  HostfileReader reader(shown(path));
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    reader.read_line(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  return reader.take();
}

std::vector<Host> read_hostfile(const Options& options) {
  const auto& path = options.hostfile;
  const auto fail = [&](const std::string& why) {
    throw UsageError(fmt::format("{}: {}", options.origin("hostfile", path).text(), why));
  };
  const auto file = rendezvous::read_small_file(path, kMostHostfileBytes);
  if (file.state == rendezvous::SmallFile::State::too_large)
    fail("the file is larger than 1 MiB, the limit");
  if (!file.complete()) fail("cannot read the file: " + rendezvous::error_text(file.error));
  return parse_hostfile(file.text, path);
}

}  // namespace mgpu::launcher
