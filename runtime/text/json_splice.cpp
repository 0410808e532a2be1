#include "runtime/text/json_splice.hpp"

#include <cstddef>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::text {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// Scans JSON that a parser has already validated. Still throws if it would read past the end.
class Scanner {
 public:
  explicit Scanner(std::string_view json) : json_(json) { skip_blanks(); }

  std::size_t at() const { return at_; }
  char here() const {
    if (at_ >= json_.size()) throw rendezvous::InputError("JSON ends too early");
    return json_[at_];
  }
  void step() {
    here();
    ++at_;
  }
  void skip_blanks() {
    while (at_ < json_.size() && kBlanks.find(json_[at_]) != std::string_view::npos) ++at_;
  }
  // The string as written, including escapes.
  std::string_view string() {
    const std::size_t begin = at_ + 1;
    for (step(); here() != '"'; step()) {
      if (here() == '\\') step();
    }
    step();
    return json_.substr(begin, at_ - 1 - begin);
  }
  void skip_value() {
    int depth = 0;
    do {
      const char c = here();
      if (c == '"') {
        string();
      } else {
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        step();
      }
    } while (depth > 0);
    while (at_ < json_.size() &&
           std::string_view(",]} \t\r\n").find(json_[at_]) == std::string_view::npos) {
      ++at_;  // the rest of a number or a literal
    }
  }

 private:
  std::string_view json_;
  std::size_t at_ = 0;
};

std::string unescaped(std::string_view written) {
  if (written.find('\\') == std::string_view::npos) return std::string(written);
  return nlohmann::json::parse(fmt::format("\"{}\"", written)).get<std::string>();
}

struct Span {
  std::size_t begin = 0, end = 0;
};

// The position of a key's value in the outermost object; nothing if there is no such key.
Span value_of(std::string_view json, std::string_view key, std::size_t& inside) {
  Scanner scan(json);
  Span found;
  if (scan.here() != '{') throw rendezvous::InputError("JSON must be an object");
  scan.step();
  inside = scan.at();
  for (scan.skip_blanks(); scan.here() != '}'; scan.skip_blanks()) {
    const std::string name = unescaped(scan.string());
    scan.skip_blanks();
    scan.step();  // the colon
    scan.skip_blanks();
    const std::size_t begin = scan.at();
    scan.skip_value();
    if (name == key) found = {begin, scan.at()};  // the last of two equal keys is used
    scan.skip_blanks();
    if (scan.here() == ',') scan.step();
  }
  return found;
}

}  // namespace

std::string with_appended(std::string_view json, std::string_view key,
                          std::span<const std::string> entries) {
  std::size_t inside = 0;
  const Span value = value_of(json, key, inside);
  std::string out(json);
  if (value.end == 0) {
    const std::size_t next = json.find_first_not_of(kBlanks, inside);
    const char* const comma = json[next] == '}' ? "" : ",";
    return out.insert(inside, fmt::format("\"{}\":[{}]{}", key, fmt::join(entries, ","), comma));
  }
  const std::string_view old = json.substr(value.begin, value.end - value.begin);
  if (old == "null") {
    return out.replace(value.begin, old.size(), fmt::format("[{}]", fmt::join(entries, ",")));
  }
  // Each new entry gets its own line if the existing ones do.
  const std::size_t last = json.find_last_not_of(kBlanks, value.end - 2);
  const bool empty = last == value.begin;
  const std::size_t first = json.find_first_not_of(kBlanks, value.begin + 1);
  const std::string_view gap = empty ? "" : json.substr(value.begin + 1, first - value.begin - 1);
  std::string added;
  for (const std::string& entry : entries) {
    if (!empty || !added.empty()) added += ',';
    added.append(gap).append(entry);
  }
  return out.insert(last + 1, added);
}

}  // namespace mgpu::text
