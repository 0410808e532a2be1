#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/data/loader.hpp"
#include "runtime/data/prepare.hpp"
#include "runtime/data/window_maker.hpp"

namespace mgpu::data {

struct StreamOptions {
  // For the files of windows, of the processes of one node alone. Removed at the end.
  std::filesystem::path folder;
  // Whether this process tokenizes for its node: one process per node does.
  bool makes_windows = true;
  std::int64_t window_rows = 1;
  Mixture mixture = {};
};

// The window that a step belongs to: with it a run goes on without tokenizing the rows before.
struct StreamPlace {
  WindowNumber window = {};
  std::int64_t first_step = 0;  // of the window

  friend bool operator==(const StreamPlace&, const StreamPlace&) = default;
};

// The steps of a dataset that is tokenized while it is trained on, window by window. Rows are
// shuffled, packed and grouped within a window; a step never spans two. All processes get the same
// steps. The files' rows are read again from the beginning when they end.
class Stream {
 public:
  // Opens the files without reading them as a whole. `encoder` must outlive it. Throws as prepare()
  // does for files that cannot be opened.
  Stream(const std::vector<Source>& sources, const PrepareOptions& rows, StreamOptions options,
         const Encoder& encoder);
  ~Stream();

  // Digests of the files, from their sizes and their first and last bytes.
  std::vector<std::string> digests() const;
  std::int64_t window_rows() const { return windows_.rows; }
  // Notes about how rows are read, one line each.
  std::vector<std::string> notes() const;

  // Creates the folder anew, without the windows that a killed run has left. To be called before
  // start(), and before another process of the node calls at().
  void clear_folder();
  // Starts to tokenize. Called once, before at().
  void start(const StreamPlace& place, const ScheduleOptions& schedule);

  // The next step; steps are requested in order. Waits for its window. Called by one thread at a
  // time.
  FedStep at(std::int64_t step, const std::stop_token& stop);

  // The place of a step that at() has returned, or of the one after it.
  StreamPlace place_of(std::int64_t step) const;

  // To be called when all ranks have done the steps before this one: their windows are removed.
  void release(std::int64_t step);
  // Removes all windows. After an error of at(), nothing else may be called.
  void discard();

  // What happened to the rows of windows that were opened since the last call, one line each.
  std::vector<std::string> take_lines();

 private:
  struct Window {
    StreamPlace place;
    std::int64_t steps = 0;
    std::shared_ptr<const Dataset> dataset;
    std::optional<Schedule> schedule;  // none without examples

    std::int64_t end() const { return place.first_step + steps; }
  };

  Window open(const StreamPlace& place, const std::stop_token& stop);
  void wait_for(const std::filesystem::path& path, const std::stop_token& stop) const;
  void report(const SourceReport& report);

  std::vector<SourcePlan> plans_;
  StreamOptions options_;
  bool owns_folder_ = false;
  WindowOptions windows_;
  ScheduleOptions schedule_;
  StreamPlace next_;  // the window to open next
  std::optional<Window> current_;
  mutable std::mutex mutex_;  // of the following members
  struct Span {
    StreamPlace place;
    std::int64_t end;
  };
  std::deque<Span> opened_;  // not released
  std::vector<std::string> lines_;
  std::int64_t reported_ = 0;
  std::unique_ptr<WindowMaker> maker_;
};

}  // namespace mgpu::data
