#include "runtime/data/window_maker.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/parallel.hpp"
#include "runtime/data/shard.hpp"

namespace mgpu::data {

namespace {

namespace fs = std::filesystem;

constexpr std::ptrdiff_t kMostWindows = 3;
constexpr std::size_t kRowsPerTask = 64;

// Whether an example has a target token within max_length, as Dataset counts them.
bool has_target(const Example& example, std::int64_t max_length) {
  auto length = example.labels.size();
  if (max_length > 0) length = std::min(length, static_cast<std::size_t>(max_length));
  for (std::size_t i = 1; i < length; ++i)
    if (example.labels[i] != kNoTarget) return true;
  return false;
}

// A row as an example, or why it is bad.
struct ReadRow {
  std::optional<Example> example;
  std::string error;
};

ReadRow read_row(const SourcePlan& plan, const StreamRow& row) {
  const auto where = [&] { return fmt::format("{}:{}: ", plan.file.path(), row.number); };
  try {
    ReadRow read{.example = plan.read(row.text), .error = {}};
    if (auto& lost = read.example->lost_prompt) lost = where() + *lost;
    return read;
  } catch (const std::runtime_error& e) {  // of the row, the tokenizer or the template
    return {.example = {}, .error = where() + e.what()};
  }
}

}  // namespace

fs::path path_of(const WindowOptions& options, WindowNumber window) {
  return options.folder / fmt::format("{}-{}.tokens", window.pass, window.window);
}

std::uint64_t piece_of(WindowNumber window) {
  return static_cast<std::uint64_t>(window.pass) << 40 | static_cast<std::uint64_t>(window.window);
}

WindowMaker::WindowMaker(const std::vector<SourcePlan>& plans, WindowOptions options,
                         WindowNumber first)
    : plans_(plans), options_(std::move(options)), first_(first) {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void WindowMaker::run(const std::stop_token& stop) {
  try {
    while (make_pass(first_, stop)) first_ = {.pass = first_.pass + 1, .window = 0};
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
  }
}

// Returns false if it was stopped.
bool WindowMaker::make_pass(WindowNumber first, const std::stop_token& stop) {
  RowStream stream(plans_, options_.mixture, options_.seed, first.pass);
  StreamRow row;
  for (std::int64_t skipped = 0; skipped < first.window * options_.rows; ++skipped) {
    if (stop.stop_requested()) return false;
    if (!stream.next(row))
      throw rendezvous::InputError(fmt::format(
          "the stream has {} rows, but the checkpoint was saved after {} of them; restore the "
          "files, or set resume_from_checkpoint: no to start over",
          skipped, first.window * options_.rows));
  }
  bool has_examples = first.window > 0;
  std::vector<StreamRow> rows;
  do {
    if (!wait_for_space(stop)) return false;
    rows.clear();
    while (static_cast<std::int64_t>(rows.size()) < options_.rows && stream.next(row))
      rows.push_back(std::move(row));
    if (make(first, rows)) has_examples = true;
    ++first.window;
  } while (static_cast<std::int64_t>(rows.size()) == options_.rows);
  if (has_examples) return true;
  throw rendezvous::InputError(fmt::format(
      "no example is left: no row of the stream has a target token within max_length {}; the first "
      "file is {}",
      options_.max_length, plans_.front().file.path()));
}

// Returns whether the window has an example.
bool WindowMaker::make(WindowNumber number, const std::vector<StreamRow>& rows) {
  std::vector<ReadRow> read(rows.size());
  const std::size_t tasks = (rows.size() + kRowsPerTask - 1) / kRowsPerTask;
  for_each_index(tasks, options_.threads, [&](std::size_t task) {
    const std::size_t end = std::min(rows.size(), (task + 1) * kRowsPerTask);
    for (std::size_t i = task * kRowsPerTask; i < end; ++i) {
      read[i] = read_row(plans_[rows[i].source], rows[i]);
      if (!read[i].example && !options_.skip_bad_rows) throw rendezvous::InputError(read[i].error);
    }
  });
  ShardWriter writer;
  bool has_examples = false;
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (!read[i].example) {
      writer.add_bad(i, read[i].error);
      continue;
    }
    writer.add(*read[i].example, i);
    has_examples = has_examples || has_target(*read[i].example, options_.max_length);
  }
  {
    // Before the file is there: it may be released at once.
    const std::lock_guard lock(mutex_);
    made_.push_back({number, has_examples});
  }
  write_prepared(path_of(options_, number), writer.finish(options_.key, piece_of(number)));
  return has_examples;
}

bool WindowMaker::wait_for_space(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  return changed_.wait(lock, stop, [this] {
    return std::count_if(made_.begin(), made_.end(),
                         [](const Made& made) { return made.has_examples; }) < kMostWindows;
  });
}

void WindowMaker::release(WindowNumber before) {
  const std::lock_guard lock(mutex_);
  for (; !made_.empty() && made_.front().number < before; made_.pop_front()) {
    std::error_code ignored;
    fs::remove(path_of(options_, made_.front().number), ignored);
  }
  changed_.notify_all();
}

void WindowMaker::check() const {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

}  // namespace mgpu::data
