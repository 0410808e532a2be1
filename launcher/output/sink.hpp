#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/output/file_thread.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// Our stdout or stderr, shared by the ranks. Writing never blocks: data that a slow reader or a
// slow file system does not accept is queued, and while full() is true the sources must stop
// reading. After a failed write later data is discarded. A reader that has gone away is not an
// error.
class Sink {
 public:
  Sink(boost::asio::io_context& io, int fd);
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  void write(std::string_view bytes);
  bool full() const { return file_ ? file_->full() : queue_.size() - taken_ >= kHighWater; }
  bool empty() const { return file_ ? thread_->idle() : queue_.size() == taken_; }
  bool is_terminal() const { return terminal_; }
  bool is_file() const { return file_ != nullptr; }
  int fd() const { return fd_; }

  // Gives back the memory of the queue if it is empty, and returns whether it is.
  bool release_memory();

  // Called when a full sink has room again, and when it has become empty.
  void on_progress(std::function<void()> call);
  // Called at most once, with errno, when a write fails for another reason than a reader that left.
  void on_failure(std::function<void(int error)> call);

 private:
  static constexpr size_t kHighWater = 256 << 10;
  static constexpr size_t kFileHighWater = 1 << 20;  // all ranks share one thread that writes
  enum class Kind { nonblocking, socket, device, cautious };

  ssize_t put(std::string_view bytes);
  void push_queue();
  void wait_for_room();

  int fd_;                    // as inherited
  rendezvous::UniqueFd own_;  // the same file, opened again without blocking
  Kind kind_ = Kind::device;
  bool terminal_ = false;
  bool closed_ = false;
  bool waiting_ = false;
  boost::asio::posix::stream_descriptor watch_;
  std::string queue_;
  size_t taken_ = 0;
  std::function<void()> on_progress_;
  std::function<void(int)> on_failure_;
  std::unique_ptr<FileThread> thread_;  // if it is a file, as of `> log`
  std::unique_ptr<QueuedFile> file_;
};

}  // namespace mgpu::launcher
