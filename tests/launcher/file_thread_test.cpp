#include "launcher/output/file_thread.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using mgpu::rendezvous::UniqueFd;
using mgpu::tests::TempDir;
using namespace std::chrono_literals;

namespace {

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A file of which a write blocks until somebody reads.
struct Fifo {
  explicit Fifo(const TempDir& dir) : path(dir.path("fifo")) {
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    reader.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    writer.reset(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    REQUIRE(writer);
    capacity = static_cast<size_t>(::fcntl(writer.get(), F_GETPIPE_SZ));
  }
  // Reads what is there.
  std::string read() {
    std::string text;
    char block[64 << 10];
    for (ssize_t n; (n = ::read(reader.get(), block, sizeof block)) > 0;)
      text.append(block, static_cast<size_t>(n));
    return text;
  }

  std::string path;
  UniqueFd reader, writer;
  size_t capacity = 0;
};

// Runs the loop until the condition is true, and checks that it becomes true.
void run_until(boost::asio::io_context& io, const std::function<bool()>& condition) {
  boost::asio::steady_timer tick(io);
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!condition() && std::chrono::steady_clock::now() < deadline) {
    tick.expires_after(1ms);
    tick.async_wait([](const auto&) {});
    io.restart();
    io.run_one();
  }
  CHECK(condition());
}

}  // namespace

TEST_CASE("one block is written while the next one grows", "[file_thread]") {
  PendingBytes bytes(4);
  CHECK(bytes.empty());
  bytes.append("ab");
  CHECK_FALSE(bytes.full());
  bytes.append("cd");
  CHECK(bytes.full());
  CHECK(bytes.begin_block() == "abcd");
  CHECK_FALSE(bytes.full());
  CHECK_FALSE(bytes.waiting());
  CHECK_FALSE(bytes.empty());  // it is not written yet

  SECTION("in order") {
    bytes.append("efghi");
    CHECK(bytes.full());
    bytes.wrote();
    CHECK(bytes.waiting());
    CHECK(bytes.begin_block() == "efghi");
    bytes.wrote();
    CHECK(bytes.empty());
  }
  SECTION("after a failure nothing is left") {
    bytes.append("e");
    bytes.drop();
    CHECK(bytes.empty());
  }
  SECTION("memory is given back only between blocks") {
    CHECK_FALSE(bytes.release_memory());
    bytes.wrote();
    bytes.append("e");
    CHECK_FALSE(bytes.release_memory());
    CHECK(bytes.begin_block() == "e");
    bytes.wrote();
    CHECK(bytes.release_memory());
    bytes.append("f");
    CHECK(bytes.begin_block() == "f");
  }
}

TEST_CASE("what was appended is in the file, in order, when the thread is idle", "[file_thread]") {
  const TempDir dir;
  boost::asio::io_context io;
  std::string expected[2];
  {
    FileThread thread(io);
    QueuedFile first(thread, dir.path("0"), O_TRUNC), second(thread, dir.path("1"), O_TRUNC);
    for (int i = 0; i < 20000; ++i) {
      const auto line = std::to_string(i) + " is a line\n";
      expected[i % 2] += line;
      (i % 2 == 0 ? first : second).append(line);
    }
    run_until(io, [&] { return thread.idle(); });
    CHECK(contents(dir.path("0")) == expected[0]);
    CHECK(contents(dir.path("1")) == expected[1]);
  }
}

TEST_CASE("an existing file is continued unless it is truncated", "[file_thread]") {
  const TempDir dir;
  std::ofstream(dir.path("a")) << "old ";
  std::ofstream(dir.path("b")) << "old ";
  boost::asio::io_context io;
  FileThread thread(io);
  QueuedFile(thread, dir.path("a"), 0).append("new");  // destroyed at once
  QueuedFile(thread, dir.path("b"), O_TRUNC).append("new");
  QueuedFile(thread, dir.path("c"), O_TRUNC);
  run_until(io, [&] { return thread.idle(); });
  CHECK(contents(dir.path("a")) == "old new");
  CHECK(contents(dir.path("b")) == "new");
  CHECK(::access(dir.path("c").c_str(), F_OK) == 0);
}

TEST_CASE("a write that does not return fills the queue and not the caller's time",
          "[file_thread]") {
  const TempDir dir;
  Fifo fifo(dir);
  boost::asio::io_context io;
  FileThread thread(io);
  QueuedFile file(thread, fifo.writer.get());
  int progress = 0;
  thread.on_progress([&] { ++progress; });
  std::string sent;
  const auto send = [&](size_t count) {
    std::string block;
    for (size_t i = 0; i < count; ++i) block += static_cast<char>('a' + (sent.size() + i) % 26);
    sent += block;
    file.append(block);
  };
  send(2 * fifo.capacity);
  run_until(io, [&] { return !file.empty(); });
  // One block is being written; the next one grows.
  while (!file.full()) send(64 << 10);
  CHECK(sent.size() <= 2 * fifo.capacity + 2 * PendingBytes::kHighWater + (64 << 10));
  CHECK_FALSE(thread.idle());
  CHECK(progress == 0);

  std::string received;
  run_until(io, [&] {
    received += fifo.read();
    return progress > 0;
  });
  run_until(io, [&] { return !file.full(); });
  run_until(io, [&] {
    received += fifo.read();
    return thread.idle();
  });
  received += fifo.read();
  CHECK(received == sent);
}

TEST_CASE("a file that stalls does not hold up another thread's files", "[file_thread]") {
  const TempDir dir;
  Fifo fifo(dir);
  boost::asio::io_context io;
  FileThread stalled(io), other(io);
  QueuedFile slow(stalled, fifo.writer.get());
  slow.append(std::string(2 * fifo.capacity, 'x'));
  QueuedFile(other, dir.path("a"), O_TRUNC).append("a");
  run_until(io, [&] { return other.idle(); });
  CHECK(contents(dir.path("a")) == "a");
  CHECK_FALSE(stalled.idle());
  run_until(io, [&] {
    fifo.read();
    return stalled.idle();
  });
}

TEST_CASE("a file that cannot be written is reported once, and the rest discarded",
          "[file_thread]") {
  const TempDir dir;
  boost::asio::io_context io;
  FileThread thread(io);
  std::vector<std::pair<std::string, int>> failures;
  thread.on_failure([&](const auto& path, int error) { failures.emplace_back(path, error); });

  SECTION("because it cannot be opened") {
    QueuedFile file(thread, dir.path("none/a"), O_TRUNC);
    file.append("x");
    run_until(io, [&] { return !failures.empty(); });
    file.append("y");
    CHECK(file.empty());
    CHECK_FALSE(file.full());
    CHECK(failures == std::vector<std::pair<std::string, int>>{{dir.path("none/a"), ENOENT}});
  }
  SECTION("because there is no space") {
    QueuedFile file(thread, "/dev/full", 0);
    file.append("x");
    run_until(io, [&] { return !failures.empty(); });
    file.append("y");
    CHECK(file.empty());
    run_until(io, [&] { return thread.idle(); });
    CHECK(failures == std::vector<std::pair<std::string, int>>{{"/dev/full", ENOSPC}});
  }
}

TEST_CASE("a call in the thread is followed by one in the event loop", "[file_thread]") {
  const TempDir dir;
  boost::asio::io_context io;
  FileThread thread(io);
  const auto made = std::make_shared<std::string>();
  bool done = false;
  QueuedFile(thread, dir.path("a"), O_TRUNC).append("a");
  thread.run([made, path = dir.path("a")] { *made = contents(path); }, [&] { done = true; });
  run_until(io, [&] { return done; });
  CHECK(*made == "a");  // after what was written before
}

TEST_CASE("nothing is called after the FileThread is gone", "[file_thread]") {
  boost::asio::io_context io;
  const auto gate = std::make_shared<std::promise<void>>();
  const auto passed = std::make_shared<std::promise<void>>();
  int calls = 0;
  {
    FileThread thread(io);
    thread.run(
        [gate, passed] {
          gate->get_future().wait();
          passed->set_value();
        },
        [&] { ++calls; });
    thread.on_progress([&] { ++calls; });
    CHECK_FALSE(thread.idle());
  }
  gate->set_value();
  passed->get_future().wait();
  io.poll();
  CHECK(calls == 0);
}

TEST_CASE("an exception in the thread or in its callback comes out of the event loop",
          "[file_thread]") {
  boost::asio::io_context io;
  FileThread files(io);
  bool called = false;
  const bool in_thread = GENERATE(true, false);
  files.run(
      [in_thread] {
        if (in_thread) throw std::runtime_error("unreadable");
      },
      [&called] {
        called = true;
        throw std::runtime_error("unreadable");
      });
  const auto keep_waiting = boost::asio::make_work_guard(io);
  CHECK_THROWS_WITH(io.run(), "unreadable");
  CHECK(called != in_thread);

  SECTION("and the work counts as done") {
    run_until(io, [&] { return files.idle(); });
  }
}
