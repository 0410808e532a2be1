#include "launcher/lifecycle/error_file.hpp"

#include <charconv>
#include <iterator>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/lifecycle/text_lines.hpp"
#include "rendezvous/base/json_field.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::launcher {
namespace {

using nlohmann::json;

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr std::string_view kTraceback = "Traceback (most recent call last):";

// torch writes the time as a string, older programs as a number.
std::int64_t timestamp_of(const json& value) {
  if (value.is_number_integer()) return value.get<std::int64_t>();
  std::int64_t seconds = 0;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    std::from_chars(text.data(), text.data() + text.size(), seconds);
  }
  return seconds;
}

std::string text_at(const json& object, const char* key) {
  std::string text;
  rendezvous::read_field(object, key, text);
  return text;
}

// torch puts "[rank1]: " before every line of an uncaught exception.
std::string_view without_rank(std::string_view line) {
  if (!line.starts_with("[rank")) return line;
  size_t i = 5;
  while (i < line.size() && std::isdigit(static_cast<unsigned char>(line[i]))) ++i;
  if (i == 5 || line.substr(i, 3) != "]: ") return line;
  return line.substr(i + 3);
}

// "ValueError: boom", "torch.OutOfMemoryError: ...", "KeyboardInterrupt": a dotted name, then
// nothing or a colon.
bool looks_like_exception(std::string_view line) {
  size_t i = 0;
  while (i < line.size() &&
         (std::isalnum(static_cast<unsigned char>(line[i])) || line[i] == '_' || line[i] == '.'))
    ++i;
  return i > 0 && !std::isdigit(static_cast<unsigned char>(line[0])) &&
         (i == line.size() || line[i] == ':');
}

// A line after the first one of an exception's message. Not for what torch logs while the program
// exits, nor for its stack of C++ functions.
bool continues_message(std::string_view line) {
  return !line.empty() && line[0] != '[' && !line.starts_with("Exception raised from") &&
         !line.starts_with("Traceback") && !line.starts_with("frame #");
}

}  // namespace

std::optional<ErrorFile> parse_error_file(std::string_view text) {
  const json root = rendezvous::parse_untrusted_json(text);
  if (!root.is_object()) return std::nullopt;
  const auto message = root.find("message");
  if (message == root.end()) return std::nullopt;
  ErrorFile error;
  if (message->is_string()) {
    error.message = message->get<std::string>();
    if (error.message.empty()) return std::nullopt;
    if (root.contains("timestamp")) error.timestamp = timestamp_of(root["timestamp"]);
    return error;
  }
  if (!message->is_object()) return std::nullopt;
  error.message = text_at(*message, "message");
  if (const auto extra = message->find("extraInfo");
      extra != message->end() && extra->is_object()) {
    error.callstack = text_at(*extra, "py_callstack");
    if (extra->contains("timestamp")) error.timestamp = timestamp_of((*extra)["timestamp"]);
  }
  if (const auto code = message->find("errorCode");
      code != message->end() && code->is_number_integer())
    error.error_code = code->get<int>();
  if (error.message.empty() && error.callstack.empty()) return std::nullopt;
  return error;
}

std::string to_json(const ErrorFile& error) {
  json message = {
      {"message", error.message},
      {"extraInfo",
       {{"py_callstack", error.callstack}, {"timestamp", std::to_string(error.timestamp)}}}};
  if (error.error_code) message["errorCode"] = *error.error_code;
  return json({{"message", std::move(message)}})
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<ErrorFile> read_error_file(const std::string& path) {
  // The rank can have put anything there: a FIFO would block, also when it is opened.
  return parse_error_file(
      rendezvous::read_small_file(path, kMaxFileBytes, rendezvous::FileKind::regular).text);
}

std::optional<PythonException> find_python_exception(std::string_view text) {
  const std::vector<std::string_view> raw = lines_of(text);
  std::vector<std::string_view> lines = raw;
  for (auto& line : lines) line = without_rank(line);

  // A syntax error of the main script prints no traceback line, only `  File "x.py", line 1`.
  size_t start = lines.size();
  for (size_t i = lines.size(); i-- > 0 && start == lines.size();)
    if (lines[i] == kTraceback) start = i;
  for (size_t i = lines.size(); i-- > 0 && start == lines.size();)
    if (lines[i].starts_with("  File \"")) start = i;

  for (size_t end = start + 1; end < lines.size(); ++end) {
    if (lines[end].starts_with(' ') || !looks_like_exception(lines[end])) continue;
    PythonException found;
    found.begin = static_cast<size_t>(raw[start].data() - text.data());
    found.error.message = std::string(lines[end]);
    found.message = std::string(lines[end]);
    for (size_t i = start; i <= end; ++i) found.error.callstack.append(lines[i]).append("\n");
    for (size_t i = end + 1; i < lines.size() && continues_message(lines[i]); ++i)
      found.message.append("\n").append(lines[i]);
    return found;
  }
  return std::nullopt;
}

std::optional<ErrorFile> python_exception_in(std::string_view text) {
  auto found = find_python_exception(text);
  if (!found) return std::nullopt;
  return std::move(found->error);
}

}  // namespace mgpu::launcher
