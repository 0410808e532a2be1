#include "runtime/hub/partial_files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".incomplete";
constexpr std::int64_t kBlock = 512;  // of st_blocks
constexpr std::size_t kOwnName = 8;   // hexadecimal digits, which each download chooses

// The name of the blob without what follows it in the name of a partial file, and whether only the
// process that wrote the file can continue it (newer versions of hf).
struct PartialName {
  std::string blob;
  bool of_one_process = false;
};

PartialName parse(std::string name) {
  name.resize(name.size() - kPartial.size());
  const auto dot = name.rfind('.');
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (dot == name.npos || name.size() - dot - 1 != kOwnName ||
      !std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dot) + 1, name.end(), is_digit))
    return {name, false};
  return {name.substr(0, dot), true};
}

// Whether a process holds hf's lock of the blob.
bool is_being_written(const fs::path& repository, const std::string& blob) {
  const auto lock = repository.parent_path() / ".locks" / repository.filename() / (blob + ".lock");
  const rendezvous::UniqueFd fd(::open(lock.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  return fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

std::int64_t bytes_in(const std::string& repository_folder) {
  std::int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(repository_folder, error), end; !error && at != end;
       at.increment(error)) {
    struct stat status{};  // a partial file gets another name when it is complete
    if (::lstat(at->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    bytes += std::min<std::int64_t>(status.st_size, status.st_blocks * kBlock);
  }
  return bytes;
}

void remove_partial_files(const std::string& repository_folder, bool all) {
  const fs::path repository = repository_folder;
  std::error_code error;
  for (fs::directory_iterator at(repository / "blobs", error), end; !error && at != end;
       at.increment(error)) {
    const auto name = at->path().filename().string();
    if (!name.ends_with(kPartial)) continue;
    const auto partial = parse(name);
    if ((!all && !partial.of_one_process) || is_being_written(repository, partial.blob)) continue;
    std::error_code ignored;
    fs::remove(at->path(), ignored);
  }
}

}  // namespace mgpu::hub
