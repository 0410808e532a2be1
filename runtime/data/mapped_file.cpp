#include "runtime/data/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::data {

using rendezvous::throw_errno;

namespace {

FileStamp stamp_of(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = status.st_size,
          .seconds = status.st_mtim.tv_sec,
          .nanoseconds = status.st_mtim.tv_nsec};
}

}  // namespace

std::optional<FileStamp> FileStamp::of(const std::filesystem::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return stamp_of(status);
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const rendezvous::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw_errno(fmt::format("cannot open {}", path.string()));
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) throw_errno(fmt::format("cannot stat {}", path.string()));
  if (!S_ISREG(status.st_mode))
    throw rendezvous::InputError(
        fmt::format("cannot read {}: it is not a regular file", path.string()));
  stamp_ = stamp_of(status);
  if (status.st_size == 0) return;  // mmap rejects an empty mapping

  const auto size = static_cast<std::size_t>(status.st_size);
  void* const start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (start == MAP_FAILED) throw_errno(fmt::format("cannot map {}", path.string()));
  start_ = static_cast<const char*>(start);
  size_ = size;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : start_(std::exchange(other.start_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      stamp_(other.stamp_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(start_, other.start_);
  std::swap(size_, other.size_);
  std::swap(stamp_, other.stamp_);
  return *this;
}

void MappedFile::unload() const noexcept {
  if (start_) ::madvise(const_cast<char*>(start_), size_, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (start_) ::munmap(const_cast<char*>(start_), size_);
}

}  // namespace mgpu::data
