#include "launcher/output/file_thread.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/post.hpp>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

namespace mgpu::launcher {

using rendezvous::SerialThread;
using rendezvous::UniqueFd;

namespace {

constexpr auto kLastMoment = std::chrono::seconds(1);

// Returns 0, or why not all bytes could be written.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace

class FileThread::Loop : public std::enable_shared_from_this<Loop> {
 public:
  explicit Loop(boost::asio::io_context& io) : io_(&io) {}

  // In the event loop.
  std::function<void()> progress;
  std::function<void(const std::string&, int)> failure;
  void leave() {
    const std::lock_guard lock(mutex_);
    io_ = nullptr;
  }

  // In any thread.
  void begin_work() { ++under_way_; }
  // Does work that has begun. An exception continues in the event loop.
  template <class Work>
  void finish_work(const Work& work) {
    std::exception_ptr problem;
    try {
      work();
    } catch (...) {
      problem = std::current_exception();
    }
    // Given away whole: the event loop may read and free the exception at once.
    if (problem) call_in_loop([problem = std::move(problem)] { std::rethrow_exception(problem); });
    end_work();
  }
  void end_work() {
    if (--under_way_ == 0 && idle_awaited_.exchange(false)) report_progress();
  }
  bool idle() {
    idle_awaited_ = true;
    if (under_way_ != 0) return false;
    idle_awaited_ = false;
    return true;
  }
  void report_progress() {
    if (reported_.exchange(true)) return;
    post([self = shared_from_this()] {
      self->reported_ = false;
      if (self->progress) self->progress();
    });
  }
  // Makes the call in the event loop; until then there is work under way.
  void call_in_loop(std::function<void()> call) {
    begin_work();
    const bool posted = post([self = shared_from_this(), call = std::move(call)] {
      const std::unique_ptr<Loop, void (*)(Loop*)> end(self.get(),
                                                       [](Loop* loop) { loop->end_work(); });
      call();
    });
    if (!posted) end_work();
  }
  void report_failure(std::string path, int error) {
    call_in_loop([self = shared_from_this(), path = std::move(path), error] {
      if (self->failure) self->failure(path, error);
    });
  }

 private:
  bool post(std::function<void()> call) {
    const std::lock_guard lock(mutex_);
    if (io_) boost::asio::post(*io_, std::move(call));
    return io_ != nullptr;
  }

  std::mutex mutex_;
  boost::asio::io_context* io_;
  std::atomic<int> under_way_ = 0;
  std::atomic<bool> idle_awaited_ = false;  // idle() was false
  std::atomic<bool> reported_ = false;      // and the event loop has not seen it yet
};

FileThread::FileThread(boost::asio::io_context& io)
    : loop_(std::make_shared<Loop>(io)), thread_(std::make_shared<SerialThread>()) {}

FileThread::~FileThread() {
  thread_->wait_until_idle(kLastMoment);
  loop_->progress = nullptr;
  loop_->failure = nullptr;
  loop_->leave();
}

void FileThread::run(std::function<void()> work, std::function<void()> done) {
  loop_->begin_work();
  thread_->run([loop = loop_, work = std::move(work), done = std::move(done)] {
    loop->finish_work([&] {
      work();
      if (done) loop->call_in_loop(done);
    });
  });
}

bool FileThread::idle() const {
  return loop_->idle();
}

void FileThread::on_progress(std::function<void()> call) {
  loop_->progress = std::move(call);
}

void FileThread::on_failure(std::function<void(const std::string& path, int error)> call) {
  loop_->failure = std::move(call);
}

struct QueuedFile::State : std::enable_shared_from_this<State> {
  State(const FileThread& owner, size_t high_water)
      : loop(owner.loop_), thread(owner.thread_), bytes(high_water) {}

  std::shared_ptr<FileThread::Loop> loop;
  std::weak_ptr<SerialThread> thread;
  std::string path;

  std::mutex mutex;  // for what follows
  PendingBytes bytes;
  bool scheduled = false;  // a call of write_block() waits or runs
  bool refused = false;    // full() was true: the source waits for on_progress
  bool failed = false;
  bool abandoned = false;  // nothing more will be appended

  UniqueFd opened;  // in the thread only: closing a file may block, too
  int fd = -1;

  void schedule(std::function<void(State&)> work);
  void open(int flags);
  void write_block();
  void fail(int error);
};

void QueuedFile::State::schedule(std::function<void(State&)> work) {
  const auto to = thread.lock();
  if (!to) return;
  loop->begin_work();
  to->run([self = shared_from_this(), work = std::move(work)] {
    self->loop->finish_work([&] { work(*self); });
  });
}

void QueuedFile::State::open(int flags) {
  opened.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666));
  fd = opened.get();
  if (fd < 0) fail(errno);
}

// One block, and the next one only after the other files have had their turn.
void QueuedFile::State::write_block() {
  std::unique_lock lock(mutex);
  if (failed) return;
  const auto block = bytes.begin_block();
  const bool source_waits = std::exchange(refused, false);
  lock.unlock();
  if (source_waits) loop->report_progress();
  const int error = write_all(fd, block);
  lock.lock();
  bytes.wrote();
  scheduled = bytes.waiting() && error == 0;
  const bool more = scheduled;
  const bool over = abandoned;
  lock.unlock();
  if (error != 0) return fail(error);
  if (more) return schedule(&State::write_block);
  if (over) opened.reset();
}

void QueuedFile::State::fail(int error) {
  bool source_waits;
  {
    const std::lock_guard lock(mutex);
    failed = true;
    bytes.drop();
    source_waits = std::exchange(refused, false);
  }
  opened.reset();
  loop->report_failure(path, error);
  if (source_waits) loop->report_progress();
}

QueuedFile::QueuedFile(FileThread& thread, std::string path, int flags)
    : state_(std::make_shared<State>(thread, PendingBytes::kHighWater)) {
  state_->path = std::move(path);
  state_->schedule([flags](State& state) { state.open(flags); });
}

QueuedFile::QueuedFile(FileThread& thread, int fd, size_t high_water)
    : state_(std::make_shared<State>(thread, high_water)) {
  state_->fd = fd;
}

QueuedFile::~QueuedFile() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->abandoned = true;
    if (state_->scheduled) return;
  }
  state_->schedule([](State& state) { state.opened.reset(); });
}

void QueuedFile::append(std::string_view bytes) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->failed) return;
    state_->bytes.append(bytes);
    if (std::exchange(state_->scheduled, true)) return;
  }
  state_->schedule(&State::write_block);
}

bool QueuedFile::full() const {
  const std::lock_guard lock(state_->mutex);
  state_->refused = state_->bytes.full();
  return state_->refused;
}

bool QueuedFile::empty() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes.empty();
}

bool QueuedFile::release_memory() {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes.release_memory();
}

}  // namespace mgpu::launcher
