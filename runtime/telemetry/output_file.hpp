#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::telemetry {

// Told in one line what could not be done. Telemetry goes on without it.
using Complain = std::function<void(const std::string&)>;

// Writes all of it, and says whether that went well. A reader that is gone is no signal, and one
// that does not read holds a non-blocking descriptor up for a second at most.
bool write_all(int fd, std::string_view bytes);

// A file that grows record by record and holds whole records only, whatever happens: one that did
// not fit is taken back. Never throws; the first thing that goes wrong is told, once, and later
// records are still tried, for a disk may be given room again.
class OutputFile {
 public:
  OutputFile() = default;
  // Goes on at the end of the file, or behind the first `keep` bytes.
  OutputFile(std::string path, const Complain& complain, std::int64_t keep = -1);

  void append(std::string_view record);
  const std::string& path() const { return path_; }

 private:
  void complain_once(const std::string& what, int error);

  std::string path_;
  Complain complain_;
  rendezvous::UniqueFd fd_;
  std::int64_t size_ = 0;
  bool complained_ = false;
};

// Puts a whole file in the place of another, or leaves that one as it was and says why.
void replace_file(const std::string& path, std::string_view text, const Complain& complain);

// Makes the folder and those above it, or says why not.
void make_folder(const std::string& path, const Complain& complain);

}  // namespace mgpu::telemetry
