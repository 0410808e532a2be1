#pragma once

#include <unistd.h>

#include <utility>

namespace mgpu::rendezvous {

// A file descriptor that closes itself. Descriptors live in one from the line that opens them.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }

  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) ::close(fd_);  // never retried: on Linux EINTR has already closed it
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace mgpu::rendezvous
