#include "runtime/checkpoint/json_text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/checkpoint/file.hpp"

namespace mgpu::checkpoint {

namespace {

constexpr std::size_t kLongestFile = 100'000'000;
constexpr std::size_t kLongestQuote = 120;

bool is_deeper(const Json& json, int limit) {
  if (!json.is_structured()) return false;
  if (limit == 0) return true;
  for (const Json& item : json)
    if (is_deeper(item, limit - 1)) return true;
  return false;
}

// "LINE:COLUMN" of the byte at which the parser stopped.
std::string line_and_column(std::string_view text, std::size_t byte) {
  std::size_t line = 1, column = 1;
  for (const char c : text.substr(0, byte > 0 ? byte - 1 : 0)) {
    column = c == '\n' ? 1 : column + 1;
    line += c == '\n';
  }
  return fmt::format("{}:{}", line, column);
}

// nlohmann's description of the error, without its error number and without the text it last read.
std::string parser_message(const nlohmann::json::exception& e) {
  std::string_view message = e.what();
  for (const std::string_view before : {"] ", ": "})
    if (const auto at = message.find(before); at != message.npos)
      message.remove_prefix(at + before.size());
  message = message.substr(0, message.find("; last read"));
  const std::string safe = in_quotes(message);
  return safe.substr(1, safe.size() - 2);
}

// Builds the value and rejects duplicate keys. (nlohmann's parser with a callback takes time that
// grows with the square of the members of an object that are objects.)
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // not in text

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    const auto [member, is_new] = open_.back()->emplace(std::move(name), nullptr);
    if (!is_new)
      throw rendezvous::InputError(
          fmt::format("{}: duplicate key {} in one object", file_, in_quotes(member.key())));
    member_ = &member.value();
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::detail::exception& problem) override {
    throw rendezvous::InputError(fmt::format(
        "{}:{}: invalid JSON: {}", file_, line_and_column(text_, byte), parser_message(problem)));
  }

 private:
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  Json& place(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_object()) return *member_ = std::move(value);
    return open_.back()->emplace_back(std::move(value));
  }
  bool open(Json value) {
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& file_;
  Json root_;
  std::vector<Json*> open_;  // the objects and lists that are not complete
  Json* member_ = nullptr;   // of the innermost object: where the next value belongs
};

}  // namespace

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, kLongestQuote)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  if (text.size() <= kLongestQuote) return out + "'";
  while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0) == 0x80) out.pop_back();
  if (static_cast<unsigned char>(out.back()) >= 0xC0) out.pop_back();  // no half of a character
  return out + "...'";
}

std::string brief(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  return value.dump();
}

Json parse_json(std::string_view text, const std::string& file) {
  if (rendezvous::nests_too_deeply(text))
    throw rendezvous::InputError(fmt::format("{}: invalid JSON: nested more than {} levels deep",
                                             file, rendezvous::kDeepestJson));
  Builder builder(text, file);
  Json::sax_parse(text, &builder);
  return builder.take();
}

Json read_json(const std::string& path) {
  return parse_json(read_file(path, kLongestFile), path);
}

void check_kept(const Json& json, const std::string& file) {
  if (is_deeper(json, kDeepestKept))
    throw rendezvous::InputError(
        fmt::format("{}: nested more than {} levels deep", file, kDeepestKept));
}

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object())
    throw rendezvous::InputError(
        fmt::format("{} must be an object, not {}", where_, brief(object)));
}

void Fields::fail(const char* key, const std::string& wanted) const {
  const auto found = object_.find(key);
  if (found == object_.end() || found->is_null())
    throw rendezvous::InputError(
        fmt::format("{}: {} is missing; it must be {}", where_, key, wanted));
  throw rendezvous::InputError(
      fmt::format("{}: {} must be {}, not {}", where_, key, wanted, brief(*found)));
}

bool Fields::has(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

bool Fields::is_null(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && found->is_null();
}

const Json& Fields::at(const char* key) const {
  if (!has(key)) throw rendezvous::InputError(fmt::format("{}: {} is missing", where_, key));
  return *object_.find(key);
}

std::int64_t Fields::integer(const char* key, std::int64_t least, std::int64_t most) const {
  const auto wanted = [&] { return fmt::format("a whole number from {} to {}", least, most); };
  if (!has(key)) fail(key, wanted());
  const Json& value = at(key);
  if (!value.is_number_integer()) fail(key, wanted());
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) fail(key, wanted());
  const auto number = value.get<std::int64_t>();
  if (number < least || number > most) fail(key, wanted());
  return number;
}

std::int64_t Fields::integer(const char* key, std::int64_t least, std::int64_t most,
                             std::int64_t otherwise) const {
  return has(key) ? integer(key, least, most) : otherwise;
}

double Fields::number(const char* key) const {
  if (!has(key) || !at(key).is_number()) fail(key, "a number");
  return at(key).get<double>();
}

double Fields::number(const char* key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}

bool Fields::boolean(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!at(key).is_boolean()) fail(key, "true or false");
  return at(key).get<bool>();
}

std::string Fields::string(const char* key) const {
  if (!has(key) || !at(key).is_string()) fail(key, "a string");
  return at(key).get<std::string>();
}

std::string Fields::string(const char* key, const std::string& otherwise) const {
  return has(key) ? string(key) : otherwise;
}

std::vector<std::string> Fields::strings(const char* key) const {
  std::vector<std::string> all;
  if (!has(key)) return all;
  if (!at(key).is_array()) fail(key, "a list of strings");
  for (const Json& item : at(key)) {
    if (!item.is_string()) fail(key, "a list of strings");
    all.push_back(item.get<std::string>());
  }
  return all;
}

}  // namespace mgpu::checkpoint
