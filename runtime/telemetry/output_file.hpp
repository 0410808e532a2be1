#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::telemetry {

// Receives a one-line message about what failed. Telemetry continues without it.
using ErrorCallback = std::function<void(const std::string&)>;

// Writes all bytes and returns whether that succeeded. A closed pipe raises no signal. With a
// non-blocking descriptor whose reader does not read, it waits a second at most.
bool write_all(int fd, std::string_view bytes);

// A file that grows record by record and never keeps part of a record: a record that cannot be
// written completely is removed. Never throws. Only the first error is reported, but later records
// are still tried, because space may become free.
class OutputFile {
 public:
  OutputFile() = default;
  // Appends to the end of the file, or after its first `keep` bytes.
  OutputFile(std::string path, const ErrorCallback& on_error, std::int64_t keep = -1);

  void append(std::string_view record);
  const std::string& path() const { return path_; }

 private:
  void report_once(const std::string& what, int error);

  std::string path_;
  ErrorCallback on_error_;
  rendezvous::UniqueFd fd_;
  std::int64_t size_ = 0;
  bool reported_ = false;
};

// Replaces a file atomically, or leaves it unchanged and reports why.
void replace_file(const std::string& path, std::string_view text, const ErrorCallback& on_error);

// Creates the folder and its parents, or reports why that failed.
void make_folder(const std::string& path, const ErrorCallback& on_error);

}  // namespace mgpu::telemetry
