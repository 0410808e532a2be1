#include "runtime/checkpoint/file.hpp"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/small_file.hpp"

namespace mgpu::checkpoint {

using rendezvous::throw_errno;
using rendezvous::UniqueFd;

namespace {

// Linux writes at most 2 GiB per call; smaller pieces let signals be handled in time.
constexpr std::size_t kMaxWrite = std::size_t{64} << 20;
constexpr std::size_t kMaxCopy = std::size_t{1} << 30;

// A unique hidden name in the folder of `path`; it contains the process id.
std::string temporary_beside(const std::string& path) {
  static std::atomic<unsigned> count = 0;
  const std::filesystem::path target(path);
  const std::string name =
      fmt::format(".{}.tmp-{}-{}", target.filename().string(), ::getpid(), count++);
  return (target.parent_path() / name).string();
}

// fsync(), again after a signal: file systems in user space may return EINTR for any.
bool sync(const UniqueFd& fd) {
  while (::fsync(fd.get()) != 0)
    if (errno != EINTR) return false;
  return true;
}

std::string remedy(const std::string& path, int error) {
  switch (error) {
    case ENOSPC: {
      struct statvfs space{};
      std::string left;
      if (::statvfs(folder_of(path).c_str(), &space) == 0)
        left = fmt::format(" ({} left)", human_size(space.f_bavail * space.f_frsize));
      return left + "; free some space, lower save_total_limit or choose another output_dir";
    }
    case EDQUOT:
      return "; your quota there is used up: free some space or choose another output_dir";
    case EROFS:
      return "; it is mounted read-only: choose another output_dir";
    case EACCES:
    case EPERM:
      return fmt::format(
          "; user {} may not write there: choose another output_dir or change its "
          "owner",
          ::geteuid());
    case ENOTDIR:
    case EEXIST:
      return "; a file is in its way: choose another output_dir";
    case ENOENT:
      return "; the folder was removed or cannot exist: choose another output_dir";
    case EFBIG:
      return "; the limit on file sizes is reached: see `ulimit -f`";
    case EIO:
      return "; the disk or the server behind it is failing: see `dmesg`";
    default:
      return "";
  }
}

}  // namespace

void throw_write_error(const std::string& verb, const std::string& path, int error) {
  rendezvous::throw_like(std::system_error(error, std::generic_category()),
                         fmt::format("cannot {} {}: {}{}", verb, path,
                                     rendezvous::error_text(error), remedy(path, error)));
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string human_size(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
  double size = static_cast<double>(bytes);
  int unit = 0;
  for (; size >= 1000 && unit < 6; ++unit) size /= 1000;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.2f} {}", size, kUnits[unit]);
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  fd_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd_) throw_errno("cannot open " + path);
  struct stat info{};
  if (::fstat(fd_.get(), &info) != 0) throw_errno("cannot stat " + path);
  if (!S_ISREG(info.st_mode)) throw std::runtime_error(path + " is not a regular file");
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return;  // mmap rejects an empty mapping
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd_.get(), 0);
  if (at == MAP_FAILED) throw_errno("cannot map " + path);
  ::madvise(at, size, MADV_SEQUENTIAL);  // tensors are large: read far ahead
  bytes_ = {static_cast<const std::byte*>(at), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::move(other.fd_)),
      bytes_(std::exchange(other.bytes_, {})) {}

void MappedFile::read(std::span<const std::byte> part, std::byte* to) const {
  auto offset = part.data() - bytes_.data();
  for (std::size_t left = part.size(); left > 0;) {
    const ssize_t got = ::pread(fd_.get(), to, std::min(left, kMaxCopy), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("cannot read " + path_);
    if (got == 0)
      throw std::runtime_error(
          fmt::format("cannot read {}: another program has made it shorter", path_));
    left -= static_cast<std::size_t>(got);
    to += got;
    offset += got;
  }
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

OutputFile::OutputFile(std::string path, std::uint64_t size)
    : path_(std::move(path)), temporary_(temporary_beside(path_)) {
  fd_.reset(::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd_) fail("create", errno);
  // Report only errors that the writes will have too: many file systems cannot reserve space.
  if (size > 0 && ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(size)) != 0 &&
      (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    fail("reserve " + human_size(size) + " for", error);
  }
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::move(other.fd_)) {}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::fail(const std::string& verb, int error) const {
  throw_write_error(verb, path_, error);
}

void OutputFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_.get(), bytes.data(), std::min(bytes.size(), kMaxWrite),
                                     static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void OutputFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail("read back", got == 0 ? EIO : errno);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

void OutputFile::copy_from(const std::string& path) {
  const UniqueFd from(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from) throw_errno("cannot open " + path);
  while (true) {
    const auto copied = ::copy_file_range(from.get(), nullptr, fd_.get(), nullptr, kMaxCopy, 0);
    if (copied == 0) return;
    if (copied > 0 || errno == EINTR) continue;
    if (errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
      fail("write", errno);
    break;  // not supported between these file systems or by this kernel
  }
  auto offset = static_cast<std::uint64_t>(::lseek(from.get(), 0, SEEK_CUR));
  write_at(offset, MappedFile(path).bytes().subspan(offset));
}

void OutputFile::commit() {
  if (!sync(fd_)) fail("write", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("create", errno);
  temporary_.clear();
  fd_.reset();
  sync_folder(folder_of(path_));
}

void write_file(const std::string& path, std::string_view bytes) {
  OutputFile file(path);
  file.write_at(0, bytes_of(bytes));
  file.commit();
}

void copy_file(const std::string& from, const std::string& to) {
  OutputFile file(to);
  file.copy_from(from);
  file.commit();
}

void make_writable_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_write_error("create the folder", path, error.value());
  if (::access(path.c_str(), W_OK | X_OK) != 0)
    throw_write_error("write into the folder", path, errno);
}

std::string read_file(const std::string& path, std::size_t limit) {
  using State = rendezvous::SmallFile::State;
  auto file = rendezvous::read_small_file(path, limit, rendezvous::FileKind::regular);
  if (file.state == State::not_regular) throw std::runtime_error(path + " is not a regular file");
  if (file.state == State::too_large)
    throw std::runtime_error(fmt::format("{} has {}; the limit is {}", path,
                                         human_size(std::filesystem::file_size(path)),
                                         human_size(limit)));
  if (!file.complete()) throw_errno("cannot open " + path, file.error);
  return std::move(file.text);
}

void sync_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || !sync(fd)) throw_write_error("write", path, errno);
}

void sync_folder(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw_write_error("open", path, errno);
  // Some network file systems do not support fsync of folders; they order renames themselves.
  if (!sync(fd) && errno != EINVAL && errno != ENOTSUP) throw_write_error("write", path, errno);
}

}  // namespace mgpu::checkpoint
