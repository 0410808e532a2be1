#include "launcher/output/sink.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

namespace mgpu::launcher {

using rendezvous::UniqueFd;

Sink::Sink(boost::asio::io_context& io, int fd)
    : fd_(fd), terminal_(::isatty(fd) == 1), watch_(io) {
  struct stat st{};
  if (::fstat(fd, &st) != 0) {
    closed_ = true;
    return;
  }
  if (S_ISREG(st.st_mode)) {
    thread_ = std::make_unique<FileThread>(io);
    file_ = std::make_unique<QueuedFile>(*thread_, fd, kFileHighWater);
    return;
  }
  if (S_ISCHR(st.st_mode) && !terminal_) return;
  if (S_ISSOCK(st.st_mode)) {
    kind_ = Kind::socket;
  } else {
    // O_NONBLOCK on the inherited descriptor would also affect the shell that started us; opening
    // the same file again gives a descriptor with its own flags.
    own_ = UniqueFd(::open(fmt::format("/proc/self/fd/{}", fd).c_str(),
                           O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    kind_ = own_ ? Kind::nonblocking : Kind::cautious;
  }
  UniqueFd watched(::fcntl(own_ ? own_.get() : fd_, F_DUPFD_CLOEXEC, 3));
  boost::system::error_code failed;
  watch_.assign(watched.release(), failed);
}

void Sink::on_progress(std::function<void()> call) {
  if (thread_) thread_->on_progress(call);
  on_progress_ = std::move(call);
}

void Sink::on_failure(std::function<void(int)> call) {
  if (thread_) thread_->on_failure([call](const std::string&, int error) { call(error); });
  on_failure_ = std::move(call);
}

void Sink::write(std::string_view bytes) {
  if (closed_) return;
  if (file_) return file_->append(bytes);
  if (empty()) {
    while (!bytes.empty()) {
      const ssize_t n = put(bytes);
      if (n <= 0) break;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    if (closed_ || bytes.empty()) return;
  }
  queue_.append(bytes);
  wait_for_room();
}

bool Sink::release_memory() {
  if (file_) return file_->release_memory();
  if (!empty()) return false;
  queue_.shrink_to_fit();
  return true;
}

// Returns the number of bytes written; 0 when it would block. Closes the sink after a failure, such
// as a reader that has gone away.
ssize_t Sink::put(std::string_view bytes) {
  ssize_t n = -1;
  do {
    switch (kind_) {
      case Kind::nonblocking:
        n = ::write(own_.get(), bytes.data(), bytes.size());
        break;
      case Kind::socket:
        n = ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
      case Kind::device:
        n = ::write(fd_, bytes.data(), bytes.size());
        break;
      case Kind::cautious: {
        pollfd ready{fd_, POLLOUT, 0};
        if (::poll(&ready, 1, 0) <= 0) return 0;
        n = ::write(fd_, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
        break;
      }
    }
  } while (n < 0 && errno == EINTR);
  if (n >= 0) return n;
  const int error = errno;
  if (error == EAGAIN || error == EWOULDBLOCK) return 0;
  closed_ = true;
  queue_.clear();
  taken_ = 0;
  const bool reader_left = error == EPIPE || error == ECONNRESET;
  if (!reader_left && on_failure_) on_failure_(error);
  return -1;
}

void Sink::push_queue() {
  const bool was_full = full();
  while (!empty() && !closed_) {
    const ssize_t n = put(std::string_view(queue_).substr(taken_));
    if (n <= 0) break;
    taken_ += static_cast<size_t>(n);
  }
  if (taken_ == queue_.size()) {
    queue_.clear();
    taken_ = 0;
  } else if (taken_ > kHighWater) {
    queue_.erase(0, taken_);
    taken_ = 0;
  }
  if (!empty()) wait_for_room();
  if ((was_full && !full()) || empty())
    if (on_progress_) on_progress_();
}

void Sink::wait_for_room() {
  if (waiting_ || !watch_.is_open()) return;
  waiting_ = true;
  watch_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                    [this](const boost::system::error_code& failed) {
                      waiting_ = false;
                      if (!failed) push_queue();
                    });
}

}  // namespace mgpu::launcher
