#pragma once

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/output/pending_bytes.hpp"
#include "rendezvous/base/serial_thread.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// Does file operations in a thread of its own, in order, so that a file system that does not
// respond never holds up the event loop. Only the event loop's thread calls it; its callbacks are
// made there too. The destructor waits a moment for operations that are under way.
class FileThread {
 public:
  explicit FileThread(boost::asio::io_context& io);
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;
  ~FileThread();

  // Calls `work` in the thread, and then `done` in the event loop. `work` owns what it uses. If it
  // throws, `done` is not called: the exception comes out of io_context::run().
  void run(std::function<void()> work, std::function<void()> done = {});
  // The same with a result: calls done(work()).
  template <class Work, class Done>
  void ask(Work work, Done done) {
    const auto result = std::make_shared<decltype(work())>();
    run([result, work = std::move(work)] { *result = work(); },
        [result, done = std::move(done)]() mutable { done(std::move(*result)); });
  }
  // Whether everything is done. If not, on_progress() follows when it is.
  bool idle() const;

  // `call` is made when a QueuedFile that was full has room again, and as idle() promises.
  void on_progress(std::function<void()> call);
  // `call` is made, with path and errno, when a QueuedFile cannot be opened or written.
  void on_failure(std::function<void(const std::string& path, int error)> call);

 private:
  friend class QueuedFile;
  class Loop;  // how the thread reaches the event loop, as long as there is one
  std::shared_ptr<Loop> loop_;
  std::shared_ptr<rendezvous::SerialThread> thread_;
};

// A file that a FileThread writes. Appending does not wait; a source should stop when full() is
// true, until the FileThread's on_progress(). After a failure the rest is discarded. When the
// QueuedFile is destroyed, what was appended is still written, and the file closed.
class QueuedFile {
 public:
  // Opens the path for appending, with further flags such as O_TRUNC.
  QueuedFile(FileThread& thread, std::string path, int flags);
  // Writes to an open descriptor that stays open. full() becomes true at `high_water` bytes.
  QueuedFile(FileThread& thread, int fd, size_t high_water = PendingBytes::kHighWater);
  QueuedFile(const QueuedFile&) = delete;
  QueuedFile& operator=(const QueuedFile&) = delete;
  ~QueuedFile();

  void append(std::string_view bytes);
  bool full() const;
  bool empty() const;
  // Gives back the memory of its buffers if they are empty, and returns whether they are.
  bool release_memory();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace mgpu::launcher
