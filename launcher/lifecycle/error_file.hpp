#pragma once

#include <cstddef>
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
  std::int64_t timestamp = 0;  // seconds since 1970, 0: unknown
  std::optional<int> error_code;
  friend bool operator==(const ErrorFile&, const ErrorFile&) = default;
};

// Parses an error file; nullopt when the text is not one (empty, truncated, another format).
std::optional<ErrorFile> parse_error_file(std::string_view text);

// Writes the long form, which torchrun's tools read.
std::string to_json(const ErrorFile& error);

// Reads at most 1 MiB of the file; nullopt when it is missing or not an error file.
std::optional<ErrorFile> read_error_file(const std::string& path);

// The last Python exception at the end of a stream. Nullopt when the text does not end with an
// exception.
struct PythonException {
  ErrorFile error;      // its traceback, and the first line of its message
  std::string message;  // all lines of its message; NCCL's reason is in the second one
  std::size_t begin;    // where the traceback begins in the text
};
std::optional<PythonException> find_python_exception(std::string_view text);

// Only the traceback and the first line.
std::optional<ErrorFile> python_exception_in(std::string_view text);

}  // namespace mgpu::launcher
