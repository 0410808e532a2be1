#pragma once

#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/data/mixture.hpp"
#include "runtime/data/row_stream.hpp"
#include "runtime/data/source_plan.hpp"

namespace mgpu::data {

// A window of a stream: consecutive rows of one pass. All windows of a pass but the last one have
// the same number of rows; the last one has fewer, perhaps none.
struct WindowNumber {
  std::int64_t pass = 0, window = 0;  // both from 0
  friend auto operator<=>(const WindowNumber&, const WindowNumber&) = default;
};

struct WindowOptions {
  std::filesystem::path folder;  // for the files of windows
  std::string key;               // of these files, see shard.hpp
  std::int64_t rows = 1;         // per window
  std::int64_t max_length = 0;
  bool skip_bad_rows = false;
  int threads = 0;
  std::uint64_t seed = 0;
  Mixture mixture = {};
};

// The file of a window, and its `piece` in the file's header.
std::filesystem::path path_of(const WindowOptions& options, WindowNumber window);
std::uint64_t piece_of(WindowNumber window);

// Tokenizes the windows of a stream in order, on a thread of its own, and writes each one into a
// file. Waits while three windows with examples are not released. The passes never end.
class WindowMaker {
 public:
  // Begins with the window `first` and skips the rows before it. The plans must outlive the maker.
  WindowMaker(const std::vector<SourcePlan>& plans, WindowOptions options, WindowNumber first);
  WindowMaker(const WindowMaker&) = delete;
  WindowMaker& operator=(const WindowMaker&) = delete;
  // Stops the thread. Does not remove files.
  ~WindowMaker() = default;

  // Removes the files of the windows before this one.
  void release(WindowNumber before);
  // Rethrows the exception that has ended the thread, if any.
  void check() const;

 private:
  struct Made {
    WindowNumber number;
    bool has_examples;
  };

  void run(const std::stop_token& stop);
  bool make_pass(WindowNumber first, const std::stop_token& stop);
  bool make(WindowNumber number, const std::vector<StreamRow>& rows);
  bool wait_for_space(const std::stop_token& stop);

  const std::vector<SourcePlan>& plans_;
  WindowOptions options_;
  WindowNumber first_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Made> made_;  // not released
  std::exception_ptr error_;
  std::jthread thread_;  // last, because it uses the other members
};

}  // namespace mgpu::data
