#include "runtime/data/stream.hpp"

#include <chrono>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "runtime/data/digest.hpp"
#include "runtime/data/random.hpp"
#include "runtime/data/report_lines.hpp"

namespace mgpu::data {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kWindowPurpose = 31;
constexpr std::int64_t kMostReports = 20;
constexpr std::chrono::milliseconds kPoll{5};
// The process that makes windows removes their folder before it reports its error.
constexpr std::chrono::seconds kReportTime{2};

}  // namespace

Stream::Stream(const std::vector<Source>& sources, const PrepareOptions& rows,
               StreamOptions options, const Encoder& encoder)
    : options_(std::move(options)) {
  PrepareOptions opening = rows;
  opening.streamed = true;
  std::string key;
  for (const Source& source : sources) {
    check_streamable(source.path, source.range);
    plans_.push_back(plan_source(source, opening, encoder));
    key += plans_.back().key;
  }
  windows_ = {.folder = options_.folder,
              .key = sha256(key),
              .rows = options_.window_rows,
              .max_length = rows.max_length,
              .skip_bad_rows = rows.skip_bad_rows,
              .threads = rows.threads,
              .mixture = options_.mixture};
}

Stream::~Stream() {
  discard();
}

std::vector<std::string> Stream::digests() const {
  std::vector<std::string> digests;
  for (const SourcePlan& plan : plans_) digests.push_back(plan.file.digest());
  return digests;
}

std::vector<std::string> Stream::notes() const {
  std::vector<std::string> lines;
  for (const SourcePlan& plan : plans_)
    for (const auto& note : plan.reader.notes())
      lines.push_back(fmt::format("{}: {}", plan.file.path(), note));
  return lines;
}

void Stream::clear_folder() {
  if (!options_.makes_windows) return;
  owns_folder_ = true;
  std::error_code error;
  fs::remove_all(options_.folder, error);
  fs::create_directories(options_.folder, error);
  if (error)
    throw std::runtime_error(
        fmt::format("cannot create {}: {}; set dataset_prepared_path to another folder",
                    options_.folder.string(), error.message()));
}

void Stream::start(const StreamPlace& place, const ScheduleOptions& schedule) {
  owns_folder_ = options_.makes_windows;
  next_ = place;
  schedule_ = schedule;
  windows_.seed = schedule.seed;
  if (options_.makes_windows)
    maker_ = std::make_unique<WindowMaker>(plans_, windows_, place.window);
}

FedStep Stream::at(std::int64_t step, const std::stop_token& stop) {
  while (!current_ || step >= current_->end()) {
    current_ = open(next_, stop);
    const std::lock_guard lock(mutex_);
    opened_.push_back({current_->place, current_->end()});
  }
  FedStep out{.step = current_->schedule->at(step - current_->place.first_step),
              .dataset = current_->dataset};
  out.step.step = step;
  out.step.epoch = current_->place.window.pass;
  return out;
}

// Sets next_.
Stream::Window Stream::open(const StreamPlace& place, const std::stop_token& stop) {
  const WindowNumber number = place.window;
  const fs::path path = path_of(windows_, number);
  wait_for(path, stop);
  std::vector<Shard> shards;
  shards.emplace_back(path, windows_.key, piece_of(number), plans_.front().vocabulary);
  SourceReport counts{.path = fmt::format("rows from {} of pass {}",
                                          number.window * windows_.rows + 1, number.pass + 1),
                      .rows = shards[0].rows(),
                      .bad = shards[0].bad(),
                      .lost = shards[0].lost(),
                      .unwritten_tools = shards[0].unwritten_tools()};
  for (const ShardNote& note : shards[0].notes())
    if (note.bad)
      counts.bad_rows.push_back(note.text);
    else if (counts.lost_prompt.empty())
      counts.lost_prompt = note.text;
  const bool ends_pass = static_cast<std::int64_t>(counts.rows) < windows_.rows;

  std::vector<TokenizedSource> files;
  files.push_back({.path = "stream", .weight = 1, .shards = std::move(shards), .first_lines = {0}});
  Window window{.place = place};
  window.dataset =
      std::make_shared<const Dataset>(std::move(files), windows_.max_length, std::span(&counts, 1));
  if (const auto size = window.dataset->size(); size > 0) {
    Selection all{.examples = std::vector<std::uint32_t>(size)};
    std::iota(all.examples.begin(), all.examples.end(), 0U);
    ScheduleOptions schedule = schedule_;
    schedule.seed = Random({schedule_.seed, kWindowPurpose, static_cast<std::uint64_t>(number.pass),
                            static_cast<std::uint64_t>(number.window)})
                        .next();
    window.schedule.emplace(window.dataset->lengths(), std::vector{std::move(all)}, schedule);
    window.steps = window.schedule->steps_in(0);
  }
  report(counts);
  next_ = {.window = ends_pass ? WindowNumber{number.pass + 1, 0}
                               : WindowNumber{number.pass, number.window + 1},
           .first_step = window.end()};
  return window;
}

// The maker is a thread of this process or of another one on this node, which removes the folder
// when it ends.
void Stream::wait_for(const fs::path& path, const std::stop_token& stop) const {
  using Clock = std::chrono::steady_clock;
  auto folder_seen = Clock::now();
  while (!fs::exists(path)) {
    if (maker_)
      maker_->check();
    else if (fs::exists(options_.folder))
      folder_seen = Clock::now();
    else if (Clock::now() - folder_seen > kReportTime)
      throw std::runtime_error("the rank that tokenizes on this node has ended");
    if (stop.stop_requested()) throw std::runtime_error("the stream was stopped");
    std::this_thread::sleep_for(kPoll);
  }
}

void Stream::report(const SourceReport& report) {
  const auto lines = lines_of(report, windows_.max_length);
  if (lines.empty()) return;
  const std::lock_guard lock(mutex_);
  if (reported_++ > kMostReports) return;
  if (reported_ > kMostReports)
    lines_.emplace_back("more windows have such rows; they are no longer reported");
  else
    lines_.insert(lines_.end(), lines.begin(), lines.end());
}

StreamPlace Stream::place_of(std::int64_t step) const {
  const std::lock_guard lock(mutex_);
  StreamPlace place;
  for (const Span& span : opened_)
    if (span.place.first_step <= step) place = span.place;
  return place;
}

void Stream::release(std::int64_t step) {
  WindowNumber before;
  {
    const std::lock_guard lock(mutex_);
    while (opened_.size() > 1 && opened_.front().end <= step) opened_.pop_front();
    if (opened_.empty()) return;
    before = opened_.front().place.window;
  }
  if (maker_) maker_->release(before);
}

void Stream::discard() {
  maker_.reset();
  if (!owns_folder_) return;
  std::error_code ignored;
  fs::remove_all(options_.folder, ignored);
}

std::vector<std::string> Stream::take_lines() {
  const std::lock_guard lock(mutex_);
  return std::exchange(lines_, {});
}

}  // namespace mgpu::data
