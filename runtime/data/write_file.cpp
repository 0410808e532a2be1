#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "runtime/data/shard.hpp"

namespace mgpu::data {

namespace {

using rendezvous::throw_errno;
using rendezvous::UniqueFd;

void write_all(int fd, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_errno(fmt::format("cannot write {}", name));
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

// A temporary file, removed by the destructor unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& near) : name_(near.string() + ".XXXXXX") {
    fd_.reset(::mkostemp(name_.data(), O_CLOEXEC));
    if (!fd_) throw_errno(fmt::format("cannot write into {}", near.parent_path().string()));
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }

  int fd() const { return fd_.get(); }
  const std::string& name() const { return name_; }
  void rename_to(const std::filesystem::path& path) {
    if (::rename(name_.c_str(), path.c_str()) != 0)
      throw_errno(fmt::format("cannot rename {} to {}", name_, path.string()));
    name_.clear();
  }

 private:
  std::string name_;
  UniqueFd fd_;
};

}  // namespace

void write_atomically(const std::filesystem::path& path, std::string_view bytes) {
  TemporaryFile file(path);
  write_all(file.fd(), bytes, file.name());
  // mkostemp allows only the owner to read; other users' jobs may share the cache.
  if (::fchmod(file.fd(), 0644) != 0 || ::fsync(file.fd()) != 0)
    throw_errno(fmt::format("cannot write {}", file.name()));
  file.rename_to(path);
  const UniqueFd folder(::open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) ::fsync(folder.get());
}

void write_prepared(const std::filesystem::path& path, std::string_view bytes) {
  try {
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error)
      throw std::runtime_error(
          fmt::format("cannot create {}: {}", path.parent_path().string(), error.message()));
    write_atomically(path, bytes);
  } catch (const std::runtime_error& e) {
    throw std::runtime_error(
        fmt::format("{}; set dataset_prepared_path to another folder", e.what()));
  }
}

}  // namespace mgpu::data
