#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mgpu::launcher {

// What a worker wrote into TORCHELASTIC_ERROR_FILE, in torchrun's format:
//   {"message": {"message": "ValueError: boom",
//                "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1795160644"}}}
// or the short form {"message": "text", "timestamp": 123}.
struct ErrorFile {
  std::string message;
  std::string callstack;       // empty in the short form
  std::int64_t timestamp = 0;  // seconds since 1970, 0: not told
  std::optional<int> error_code;
  friend bool operator==(const ErrorFile&, const ErrorFile&) = default;
};

// Nothing when the text is no error file (empty, cut off, another shape).
std::optional<ErrorFile> parse_error_file(std::string_view text);

// The long form, as torchrun's own tools read it.
std::string to_json(const ErrorFile& error);

// Reads at most 1 MiB of the file; nothing when it is missing or no error file.
std::optional<ErrorFile> read_error_file(const std::string& path);

// The last Python exception in a stream's end: its traceback and its message. Nothing when the
// text ends otherwise than with an exception.
std::optional<ErrorFile> python_exception_in(std::string_view text);

}  // namespace mgpu::launcher
