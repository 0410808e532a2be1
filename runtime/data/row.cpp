#include "runtime/data/row.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace mgpu::data {

namespace {

constexpr std::size_t kDeepest = 200;
// Looking for a key among its sisters is linear here; no row of training data has more.
constexpr std::size_t kMostKeys = 4096;

// The length of the UTF-8 character that `text` begins with; 0 where it is none.
std::size_t character_length(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char head = at(0);
  const std::size_t length = head < 0x80   ? 1
                             : head < 0xC2 ? 0
                             : head < 0xE0 ? 2
                             : head < 0xF0 ? 3
                             : head < 0xF5 ? 4
                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((at(i) & 0xC0) != 0x80) return 0;
  if ((head == 0xE0 && at(1) < 0xA0) || (head == 0xED && at(1) > 0x9F)) return 0;
  if ((head == 0xF0 && at(1) < 0x90) || (head == 0xF4 && at(1) > 0x8F)) return 0;
  return length;
}

// Builds the value while nlohmann's lexer reads. Its own builder lets the last of two equal keys
// win and knows no depth.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Json take() { return std::move(root_); }

  bool null() override { return put(nullptr), true; }
  bool boolean(bool value) override { return put(value), true; }
  bool number_integer(std::int64_t value) override { return put(value), true; }
  bool number_unsigned(std::uint64_t value) override { return put(value), true; }
  bool number_float(double value, const std::string& text) override {
    if (text.find_first_of(".eE") == text.npos)
      throw RowError(fmt::format("the number {} does not fit into 64 bits", shown(text)));
    return put(value), true;
  }
  bool string(std::string& value) override { return put(std::move(value)), true; }
  bool binary(Json::binary_t&) override { return false; }  // not in JSON text

  bool start_object(std::size_t) override { return open(Json::object()), true; }
  bool start_array(std::size_t) override { return open(Json::array()), true; }
  bool end_object() override { return open_.pop_back(), true; }
  bool end_array() override { return open_.pop_back(), true; }

  bool key(std::string& name) override {
    auto& object = open_.back()->get_ref<Json::object_t&>();
    if (object.size() >= kMostKeys)
      throw RowError(fmt::format("an object has more than {} keys", kMostKeys));
    for (const auto& member : object)
      if (member.first == name)
        throw RowError(fmt::format("the key \"{}\" is there twice", shown(name)));
    object.emplace_back(std::move(name), nullptr);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    std::string_view what = error.what();
    for (const std::string_view before : {"while parsing ", "] "})
      if (const auto found = what.find(before); found != what.npos) {
        what.remove_prefix(found + before.size());
        break;
      }
    throw RowError(fmt::format("no JSON at byte {}: {}", position, shown(what, 160)));
  }

 private:
  Json& place() {
    if (open_.empty()) return root_;
    Json& parent = *open_.back();
    if (parent.is_object()) return parent.get_ref<Json::object_t&>().back().second;
    return parent.get_ref<Json::array_t&>().emplace_back(nullptr);
  }
  void put(Json value) { place() = std::move(value); }
  void open(Json container) {
    if (open_.size() >= kDeepest)
      throw RowError(fmt::format("nested deeper than {} levels", kDeepest));
    Json& here = place();
    here = std::move(container);
    open_.push_back(&here);  // stays put: its parent grows only after it is closed
  }

  Json root_;
  std::vector<Json*> open_;
};

}  // namespace

Json parse_row(std::string_view line) {
  const std::size_t start = line.find_first_not_of(" \t\r");
  if (start == line.npos || line[start] != '{')
    throw RowError(
        fmt::format("no JSON object: {}", shown(line.substr(std::min(start, line.size())))));
  Builder builder;
  Json::sax_parse(line.data() + start, line.data() + line.size(), &builder);
  return builder.take();
}

std::string shown(std::string_view text, std::size_t limit) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= limit) return out + "...";
    const std::size_t length = character_length(text);
    const auto head = static_cast<unsigned char>(text[0]);
    if (length == 0 || head < 0x20 || head == 0x7F)
      out += fmt::format("\\x{:02x}", head);
    else
      out += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

bool blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == line.npos;
}

std::string_view take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  return line;
}

}  // namespace mgpu::data
