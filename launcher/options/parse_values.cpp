#include "launcher/options/parse_values.hpp"

#include <signal.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "launcher/options/hide_passwords.hpp"
#include "rendezvous/base/signal_names.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

using rendezvous::shown;
namespace {

constexpr double kMostSeconds = 366.0 * 24 * 3600;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::optional<int> whole_number(std::string_view text) {
  text = trimmed(text);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::optional<int> whole_in(std::string_view text, int least, int most) {
  const auto value = whole_number(text);
  return value && *value >= least && *value <= most ? value : std::nullopt;
}

std::vector<std::string_view> split_trimmed(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find(at);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool is_gpu_name(std::string_view name) {
  if (name.starts_with("GPU-") || name.starts_with("MIG-")) return true;
  return whole_in(name, 0, kMostRanks).has_value();
}

bool is_endpoint(std::string_view text) {
  if (text.empty()) return false;
  if (text.find("://") != text.npos) return true;
  std::string_view port;
  if (text.front() == '[') {
    const auto close = text.find(']');
    if (close == text.npos || close == 1) return false;
    port = text.substr(close + 1);
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    port = text.substr(text.find(':'));
    if (port.size() == text.size()) return false;
  }
  if (port.empty()) return true;
  return port.front() == ':' && whole_in(port.substr(1), 0, kLastPort).has_value();
}

}  // namespace

int parse_whole(const std::string& text, int least, int most) {
  if (const auto value = whole_in(text, least, most)) return *value;
  throw UsageError(fmt::format("need a whole number from {} to {}", least, most));
}

std::pair<int, bool> parse_restarts(const std::string& text) {
  constexpr int kMost = 1'000'000;
  constexpr std::string_view kRenewed = "/progress";
  const bool renewed = text.ends_with(kRenewed);
  const auto number = renewed ? text.substr(0, text.size() - kRenewed.size()) : text;
  if (const auto value = whole_in(number, 0, kMost)) return {*value, renewed};
  throw UsageError(
      fmt::format("need a whole number from 0 to {}, or one followed by /progress", kMost));
}

std::map<FailureKind, FailurePolicy> parse_on_failure(const std::string& text) {
  std::map<FailureKind, FailurePolicy> policies;
  for (const auto entry : split_trimmed(text, ',')) {
    const auto equals = entry.find('=');
    const auto kind = kind_named(trimmed(entry.substr(0, equals)));
    if (kind == FailureKind::none)
      throw UsageError(fmt::format("need KIND=POLICY, where KIND is one of {}",
                                   fmt::join(failure_kind_names(), ", ")));
    const auto policy =
        equals == entry.npos ? std::nullopt : policy_named(trimmed(entry.substr(equals + 1)));
    if (!policy)
      throw UsageError(fmt::format("need KIND=POLICY, where POLICY is one of {}",
                                   fmt::join(policy_names(), ", ")));
    policies[kind] = *policy;
  }
  return policies;
}

std::vector<std::string> parse_hang_activity(const std::string& text) {
  std::vector<std::string> signs;
  if (trimmed(text) == "off") return signs;
  for (const auto part : split_trimmed(text, ',')) {
    if (part != "output" && part != "cpu" && part != "gpu")
      throw UsageError("need off, or a list of output, cpu and gpu, for example output,gpu");
    if (std::ranges::find(signs, part) == signs.end()) signs.emplace_back(part);
  }
  return signs;
}

bool parse_bool(const std::string& text) {
  if (const auto number = whole_number(text)) return *number != 0;
  const auto word = std::string(trimmed(text));
  for (const char* yes : {"true", "yes", "on"})
    if (::strcasecmp(word.c_str(), yes) == 0) return true;
  for (const char* no : {"false", "no", "off"})
    if (::strcasecmp(word.c_str(), no) == 0) return false;
  throw UsageError("need 1 or 0, true or false");
}

Milliseconds parse_seconds(const std::string& text) {
  return parse_seconds_from(text, 0);
}

Milliseconds parse_seconds_from(const std::string& text, double least) {
  const auto digits = trimmed(text);
  double seconds = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
  const bool number = error == std::errc() && end == digits.data() + digits.size();
  const bool in_range = seconds >= least && seconds <= kMostSeconds;  // false for a NaN
  if (!number || !in_range)
    throw UsageError(
        fmt::format("need seconds from {} to {:.0f}, for example 30 or 2.5", least, kMostSeconds));
  return Milliseconds(std::llround(seconds * 1000));
}

std::uint64_t parse_size(const std::string& text) {
  constexpr double kLeast = 1 << 20, kMost = 1ull << 60;
  const auto word = trimmed(text);
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  std::string_view unit = trimmed({end, static_cast<size_t>(word.data() + word.size() - end)});
  double factor = 0;
  if (unit.size() > 1 && (unit.back() | 0x20) == 'b') unit.remove_suffix(1);
  if (unit.size() > 1 && (unit.back() | 0x20) == 'i') unit.remove_suffix(1);
  constexpr std::string_view kUnits = "KMGT";
  if (unit.size() == 1)
    if (const auto at = kUnits.find(static_cast<char>(unit[0] & ~0x20)); at != kUnits.npos)
      factor = static_cast<double>(1ull << (10 * (at + 1)));
  const double bytes = number * factor;
  const bool fits = bytes >= kLeast && bytes <= kMost;
  if (error != std::errc() || !fits)
    throw UsageError("need a number with a unit, K, M, G or T, and at least 1M: for example 60G");
  return static_cast<std::uint64_t>(bytes);
}

std::string parse_text(const std::string& text) {
  if (text.empty()) throw UsageError("need a value that is not empty");
  return text;
}

std::string parse_choice(const std::string& text, const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return text;
  throw UsageError(fmt::format("need one of {}", fmt::join(choices, ", ")));
}

RankCount parse_rank_count(const std::string& text) {
  using enum RankCount::Kind;
  const auto word = trimmed(text);
  if (word == "gpu") return {.kind = gpu};
  if (word == "cpu") return {.kind = cpu};
  if (word == "auto") return {.kind = automatic};
  if (const auto n = whole_in(word, 1, kMostRanks)) return {.kind = number, .number = *n};
  throw UsageError(fmt::format("need a whole number from 1 to {}, or gpu, cpu, auto", kMostRanks));
}

std::pair<int, int> parse_node_range(const std::string& text) {
  const auto parts = split_trimmed(text, ':');
  const auto least = whole_in(parts.front(), 1, kMostNodes);
  const auto most = whole_in(parts.back(), 1, kMostNodes);
  if (parts.size() > 2 || !least || !most)
    throw UsageError(fmt::format("need N or MIN:MAX, each from 1 to {}", kMostNodes));
  if (*least > *most)
    throw UsageError(
        fmt::format("the minimum number of nodes, {}, is above the maximum, {}; need "
                    "MIN:MAX, for example {}:{}",
                    *least, *most, *most, *least));
  return {*least, *most};
}

StreamMap parse_stream_map(const std::string& text) {
  constexpr const char* kNeed =
      "need 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or a map such as 0:1,11:3 with each "
      "local rank once";
  if (const auto all = whole_in(text, 0, 3)) return {.all = static_cast<unsigned>(*all)};
  StreamMap map;
  for (const auto pair : split_trimmed(text, ',')) {
    const auto parts = split_trimmed(pair, ':');
    const auto rank = whole_in(parts.front(), 0, kMostRanks - 1);
    const auto streams = whole_in(parts.back(), 0, 3);
    if (parts.size() != 2 || !rank || !streams) throw UsageError(kNeed);
    if (!map.by_rank.emplace(*rank, *streams).second) throw UsageError(kNeed);
  }
  return map;
}

std::vector<int> parse_rank_list(const std::string& text) {
  std::vector<int> ranks;
  for (const auto part : split_trimmed(text, ',')) {
    const auto rank = whole_in(part, 0, kMostRanks - 1);
    if (!rank) throw UsageError("need local ranks such as 0,1,2");
    ranks.push_back(*rank);
  }
  return ranks;
}

std::vector<int> parse_signals(const std::string& text) {
  std::vector<int> signals;
  for (const auto part : split_trimmed(text, ',')) {
    const int number = rendezvous::signal_number(part);
    if (number == 0)
      throw UsageError(
          fmt::format("{} is not a signal; need names such as SIGTERM,SIGINT", shown(part, 24)));
    if (number == SIGKILL || number == SIGSTOP)
      throw UsageError(
          fmt::format("no program can handle {}; leave it out", rendezvous::signal_name(number)));
    if (number == SIGCHLD) throw UsageError("SIGCHLD is sent whenever a rank exits; leave it out");
    if (std::find(signals.begin(), signals.end(), number) == signals.end())
      signals.push_back(number);
  }
  return signals;
}

std::vector<std::string> parse_gpus(const std::string& text) {
  std::vector<std::string> gpus;
  std::set<std::string_view> seen;
  for (const auto part : split_trimmed(text, ',')) {
    if (!is_gpu_name(part))
      throw UsageError("need GPU numbers such as 0,1 or UUIDs that begin with GPU- or MIG-");
    if (!seen.insert(part).second)
      throw UsageError(fmt::format(
          "GPU {} is listed twice; list it once, and use --oversubscribe to run several "
          "ranks on one GPU",
          shown(part, 48)));
    gpus.emplace_back(part);
  }
  return gpus;
}

NumaBinding parse_numa_binding(const std::string& text) {
  using enum NumaBinding;
  const auto word = parse_choice(text, {"none", "node", "socket", "exclusive", "core-complex"});
  if (word == "node") return node;
  if (word == "socket") return socket;
  if (word == "exclusive") return exclusive;
  return word == "core-complex" ? core_complex : none;
}

std::string parse_endpoint(const std::string& text) {
  for (const auto part : split_trimmed(text, ',')) {
    // URLs of etcd are validated by the etcd client.
    const std::string_view word = part;
    if (word.starts_with("http://") || word.starts_with("https://")) continue;
    if (!is_endpoint(part))
      throw UsageError(
          fmt::format("need HOST, HOST:PORT or [IPV6]:PORT with a port from 0 to {}", kLastPort));
  }
  return text;
}

std::map<std::string, std::string> parse_rdzv_conf(const std::string& text) {
  std::map<std::string, std::string> conf;
  for (const auto pair : split_trimmed(text, ',')) {
    const auto equals = pair.find('=');
    const auto key = trimmed(pair.substr(0, equals));
    const auto value = equals == pair.npos ? "" : trimmed(pair.substr(equals + 1));
    if (key.empty() || value.empty()) {
      constexpr const char* kNeed = "is not a pair; need key=value,key=value";
      if (conf.contains("password") && !pair.empty())
        throw UsageError(
            fmt::format("a part after password= {} (a password cannot contain a comma)", kNeed));
      throw UsageError(fmt::format("{} {}", shown(hide_passwords(pair), 24), kNeed));
    }
    conf.insert_or_assign(std::string(key), std::string(value));
  }
  return conf;
}

std::vector<std::string> parse_needles(const std::string& text) {
  std::vector<std::string> needles(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      needles.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      needles.back() += text[i++];
    } else {
      needles.emplace_back();
    }
  }
  std::erase(needles, std::string());
  if (needles.empty()) throw UsageError("need strings such as loss,error (write ,, for a comma)");
  return needles;
}

std::pair<std::string, std::string> parse_assignment(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == text.npos || equals == 0) throw UsageError("need KEY=VALUE");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

}  // namespace mgpu::launcher
