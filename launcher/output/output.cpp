#include "launcher/output/output.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>

#include "launcher/output/rank_stream.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/unused_memory.hpp"

namespace mgpu::launcher {
namespace {

constexpr auto kLongestFlush = std::chrono::minutes(1);
constexpr auto kPartialLineDelay = std::chrono::milliseconds(100);
constexpr auto kReleaseDelay = std::chrono::seconds(2);
constexpr std::size_t kLittle = 64 << 10;  // leaves no large buffers behind
constexpr unsigned kStdout = 1, kStderr = 2;
constexpr std::size_t kReportedBytes = 16 << 10, kSavedBytes = 64 << 10;

bool same_file(int a, int b) {
  struct stat sa{}, sb{};
  return ::fstat(a, &sa) == 0 && ::fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
         sa.st_ino == sb.st_ino;
}

size_t slot(int local_rank, bool err) {
  return static_cast<size_t>(local_rank) * 2 + (err ? 1 : 0);
}

const char* file_name(bool err) {
  return err ? "stderr.log" : "stdout.log";
}

std::string beside(const std::string& rank_dir, const std::string& name) {
  return rank_dir.substr(0, rank_dir.rfind('/') + 1) + name;
}

}  // namespace

Output::Output(boost::asio::io_context& io, const Options& options, int ranks)
    : io_(io),
      options_(options),
      ranks_(ranks),
      files_(io),
      out_(std::make_unique<Sink>(io, STDOUT_FILENO)),
      streams_(static_cast<size_t>(ranks) * 2),
      partial_timer_(io),
      give_up_timer_(io),
      release_timer_(io) {
  files_.on_progress([this] { make_progress(); });
  files_.on_failure([this](const auto& path, int error) { log_failed(path, error); });
  // Two queues into one pipe would mix their lines.
  if (!same_file(STDOUT_FILENO, STDERR_FILENO)) err_ = std::make_unique<Sink>(io, STDERR_FILENO);
  out_->on_progress([this] { make_progress(); });
  out_->on_failure([this](int error) {
    lost_ = true;
    print_line(
        fmt::format("mgpu-run: cannot write the ranks' output to stdout: {}; the rest is lost",
                    rendezvous::error_text(error)));
  });
  if (err_) err_->on_progress([this] { make_progress(); });
}

Output::~Output() = default;

bool Output::is_shown(int local_rank, unsigned stream) const {
  const auto& shown = options_.local_ranks_filter;
  if (!shown.empty() && std::find(shown.begin(), shown.end(), local_rank) == shown.end())
    return false;
  if (options_.tee.of(local_rank) & stream) return true;
  return !(options_.redirects.of(local_rank) & stream);
}

Output::ChildEnds Output::open_rank(int local_rank, const std::string& prefix,
                                    const std::string& log_dir, bool appends) {
  const unsigned files = options_.tee.of(local_rank) | options_.redirects.of(local_rank);
  const auto open = [&](bool err) {
    const unsigned stream = err ? kStderr : kStdout;
    RankStream::Route route;
    if (is_shown(local_rank, stream)) route.console = &console(err);
    if (options_.prefix || (options_.tee.of(local_rank) & stream)) route.prefix = prefix;
    const std::string name = file_name(err);
    const auto& needles = err ? options_.stderr_filters : options_.stdout_filters;
    if (!log_dir.empty() && (files & stream)) route.log_path = log_dir + "/" + name;
    if (!log_dir.empty() && !needles.empty() && (options_.tee.of(local_rank) & stream)) {
      route.filtered_path = beside(log_dir, "filtered_" + name);
      route.needles = needles;
    }
    route.appends = appends;
    route.mark = mark_;
    route.raw = ranks_ == 1 && route.prefix.empty() && route.console;
    auto& stream_slot = streams_[slot(local_rank, err)];
    stream_slot = std::make_shared<RankStream>(*this, io_, std::move(route));
    stream_slot->start_reading();
    return stream_slot->take_child_end();
  };
  return {open(false), open(true)};
}

bool Output::full() const {
  return std::ranges::any_of(streams_, [](const auto& stream) { return stream && stream->full(); });
}

bool Output::saw_mark(int local_rank) const {
  return std::ranges::any_of(std::array{false, true}, [&](bool err) {
    const auto& stream = streams_[slot(local_rank, err)];
    return stream && stream->marks() > 0;
  });
}

void Output::mark_seen(const RankStream* who) {
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto &out = streams_[slot(rank, false)], &err = streams_[slot(rank, true)];
    if (!out || !err || (out.get() != who && err.get() != who)) continue;
    if (out->marks() + err->marks() < 2) return;
    for (const auto& stream : {out, err}) stream->expect_no_mark();
  }
}

std::uint64_t Output::bytes_from(int local_rank) const {
  std::uint64_t bytes = 0;
  for (const bool err : {false, true})
    if (const auto& stream = streams_[slot(local_rank, err)]) bytes += stream->bytes();
  return bytes;
}

void Output::begin_attempt() {
  for (auto& stream : streams_) stream.reset();
}

void Output::drain(int local_rank) {
  for (const bool err : {false, true})
    if (auto& stream = streams_[slot(local_rank, err)]) stream->drain();
}

void Output::end_attempt() {
  for (auto& stream : streams_)
    if (stream) {
      stream->drain();
      stream->finish();
    }
}

std::string Output::stderr_tail(int local_rank) const {
  const auto& stream = streams_[slot(local_rank, true)];
  return stream ? stream->tail(kReportedBytes) : std::string();
}

void Output::save_tails(int local_rank, const std::string& log_dir) {
  if (log_dir.empty()) return;
  for (const bool err : {false, true}) {
    const auto& stream = streams_[slot(local_rank, err)];
    if (!stream || stream->has_log()) continue;
    const auto tail = stream->tail(kSavedBytes);
    if (tail.empty()) continue;
    QueuedFile(files_, log_dir + "/" + file_name(err), O_TRUNC).append(tail);
  }
}

void Output::print_line(std::string_view line) {
  Sink& sink = console(true);
  begin_output(sink, nullptr, false);
  sink.write(fmt::format("{}\n", line));
}

bool Output::flushed() const {
  // Each is asked, because progress is reported only to those that have to wait.
  bool all = files_.idle() || files_given_up_;
  for (const Sink* sink : {out_.get(), err_.get()})
    if (sink) all = (sink->empty() || (files_given_up_ && sink->is_file())) && all;
  return all;
}

void Output::when_flushed(std::function<void()> done) {
  if (flushed()) return done();
  when_flushed_ = std::move(done);
  give_up_timer_.expires_after(kLongestFlush);
  give_up_timer_.async_wait([this](const boost::system::error_code& cancelled) {
    if (!cancelled && when_flushed_) give_up_files();
  });
}

void Output::give_up_files() {
  bool stalled = !files_.idle();
  for (const Sink* sink : {out_.get(), err_.get()})
    stalled = stalled || (sink && sink->is_file() && !sink->empty());
  files_given_up_ = true;
  if (stalled)
    print_line(fmt::format(
        "mgpu-run: output has not reached its files after {} s: the file system does not respond; "
        "exiting without it",
        std::chrono::seconds(kLongestFlush).count()));
  make_progress();
}

void Output::make_progress() {
  for (auto& stream : streams_)
    if (stream) stream->resume();
  if (when_flushed_ && flushed()) std::exchange(when_flushed_, nullptr)();
}

void Output::resize_terminals() {
  for (auto& stream : streams_)
    if (stream) stream->resize();
}

void Output::log_failed(const std::string& path, int error) {
  if (std::exchange(warned_of_logs_, true)) return;
  print_line(fmt::format("mgpu-run: cannot write {}: {}; the job continues without this log",
                         rendezvous::shown(path, 300), rendezvous::error_text(error)));
}

// On a terminal an unfinished line is often a prompt, so it is shown after a short delay.
void Output::schedule_partial_flush() {
  if (partial_armed_ || !(out_->is_terminal() || (err_ && err_->is_terminal()))) return;
  partial_armed_ = true;
  partial_timer_.expires_after(kPartialLineDelay);
  partial_timer_.async_wait([this](const boost::system::error_code& cancelled) {
    partial_armed_ = false;
    if (!cancelled) flush_partial_lines();
  });
}

void Output::flush_partial_lines() {
  for (auto& stream : streams_)
    if (stream && stream->has_partial()) stream->flush_partial();
}

void Output::bytes_read(std::size_t bytes) {
  read_since_release_ += bytes;
  if (release_armed_ || read_since_release_ <= kLittle) return;
  release_armed_ = true;
  release_timer_.expires_after(kReleaseDelay);
  release_timer_.async_wait([this](const boost::system::error_code& cancelled) {
    release_armed_ = false;
    if (!cancelled) release_memory();
  });
}

// Buffers keep their size, which saves time as long as a flood of output lasts.
void Output::release_memory() {
  bool all = true;
  for (auto& stream : streams_)
    if (stream) all = stream->release_memory() && all;
  for (Sink* sink : {out_.get(), err_.get()})
    if (sink) all = sink->release_memory() && all;
  rendezvous::release_freed_memory();
  if (all) read_since_release_ = 0;
  bytes_read(0);
}

void Output::begin_output(Sink& sink, const RankStream* who, bool line_left_open) {
  if (open_line_ && open_line_ != who && sink.is_terminal()) sink.write("\n");
  open_line_ = line_left_open ? who : nullptr;
}

void Output::stream_ended(const RankStream* who) {
  if (open_line_ == who) open_line_ = nullptr;
}

}  // namespace mgpu::launcher
