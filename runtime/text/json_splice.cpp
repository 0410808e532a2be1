#include "runtime/text/json_splice.hpp"

#include <cstddef>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mgpu::text {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// Walks over JSON that a parser has found well-formed; at() past the end is a mistake all the same.
class Scanner {
 public:
  explicit Scanner(std::string_view json) : json_(json) { skip_blanks(); }

  std::size_t at() const { return at_; }
  char here() const {
    if (at_ >= json_.size()) throw std::runtime_error("JSON ends too early");
    return json_[at_];
  }
  void step() {
    here();
    ++at_;
  }
  void skip_blanks() {
    while (at_ < json_.size() && kBlanks.find(json_[at_]) != std::string_view::npos) ++at_;
  }
  // The string as it is written, escapes and all.
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
      ++at_;  // the rest of a number or a word
    }
  }

 private:
  std::string_view json_;
  std::size_t at_ = 0;
};

struct Span {
  std::size_t begin = 0, end = 0;
};

// Where the value of a key of the outermost object stands; nothing, if there is no such key.
Span value_of(std::string_view json, std::string_view key, std::size_t& inside) {
  Scanner scan(json);
  Span found;
  if (scan.here() != '{') throw std::runtime_error("JSON must be an object");
  scan.step();
  inside = scan.at();
  for (scan.skip_blanks(); scan.here() != '}'; scan.skip_blanks()) {
    const std::string_view name = scan.string();
    scan.skip_blanks();
    scan.step();  // the colon
    scan.skip_blanks();
    const std::size_t begin = scan.at();
    scan.skip_value();
    if (name == key) found = {begin, scan.at()};  // of two, the last counts
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
  // Each entry goes on a line of its own where the ones before do.
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
