#include "launcher/output/rank_stream.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "rendezvous/base/errors.hpp"

namespace mgpu::launcher {
namespace {

using rendezvous::throw_errno;
using rendezvous::UniqueFd;

constexpr size_t kReadBytes = 64 << 10;
constexpr int kReadsATurn = 4;            // then the other ranks and the supervisor get their turn
constexpr size_t kDrainBytes = 4u << 20;  // more than any pipe holds

}  // namespace

RankStream::RankStream(Output& output, boost::asio::io_context& io, Route route)
    : output_(output), route_(std::move(route)), source_(io) {
  if (!route_.log_path.empty())
    log_ = std::make_unique<QueuedFile>(output_.files(), route_.log_path,
                                        route_.appends ? 0 : O_TRUNC);
  if (!route_.filtered_path.empty())
    filtered_ = std::make_unique<QueuedFile>(output_.files(), route_.filtered_path, 0);
  // Programs that check for a terminal should find one when mgpu-run has one.
  if (!route_.console || !route_.console->is_terminal() || !open_terminal()) open_pipe();
}

void RankStream::open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot create a pipe for a rank's output");
  child_end_.reset(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  source_.assign(ends[0]);
}

bool RankStream::open_terminal() {
  UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  if (!master || ::grantpt(master.get()) != 0 || ::unlockpt(master.get()) != 0) return false;
  UniqueFd slave(::ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!slave) return false;
  termios raw{};
  if (::tcgetattr(slave.get(), &raw) != 0) return false;
  raw.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // the bytes are passed on unchanged
  ::tcsetattr(slave.get(), TCSANOW, &raw);
  child_end_ = std::move(slave);
  source_.assign(master.release());
  resize();
  return true;
}

void RankStream::resize() {
  winsize size{};
  if (!source_.is_open() || !route_.console || !route_.console->is_terminal()) return;
  if (::ioctl(route_.console->fd(), TIOCGWINSZ, &size) == 0)
    ::ioctl(source_.native_handle(), TIOCSWINSZ, &size);
}

void RankStream::start_reading() {
  if (waiting_ || ended_) return;
  waiting_ = true;
  source_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& failed) {
                       self->waiting_ = false;
                       if (!failed) self->resume();
                     });
}

void RankStream::resume() {
  if (ended_ || waiting_) return;
  for (int i = 0; i < kReadsATurn; ++i) {
    if (full()) return;  // the sink, or the file, causes a call of resume() later
    if (!read_once()) break;
  }
  if (!ended_) start_reading();
}

bool RankStream::full() const {
  return (route_.console && route_.console->full()) || (log_ && log_->full()) ||
         (filtered_ && filtered_->full());
}

void RankStream::drain() {
  const size_t turns = kDrainBytes / kReadBytes;
  for (size_t i = 0; i < turns && !ended_ && read_once(); ++i) {
  }
}

bool RankStream::read_once() {
  static std::array<char, kReadBytes> buffer;  // one loop, one thread, used within this call only
  ssize_t n;
  do {
    n = ::read(source_.native_handle(), buffer.data(), buffer.size());
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return false;
  if (n <= 0) {  // end of the pipe; a terminal returns EIO
    finish();
    return false;
  }
  const std::string_view bytes{buffer.data(), static_cast<size_t>(n)};
  if (route_.mark.empty() && !in_mark_line_)
    pass_on(bytes);
  else
    pass_on(without_mark(bytes));
  return true;
}

// Holds back an end that may be the beginning of the mark. After the mark, only the one of the
// other stream can follow, and that at once.
std::string RankStream::without_mark(std::string_view bytes) {
  held_ += bytes;
  std::string text;
  if (marks_ == 0) {
    const std::string_view mark = route_.mark;
    const auto at = held_.find(mark);
    size_t kept = at != held_.npos ? held_.size() - at : std::min(mark.size() - 1, held_.size());
    while (at == held_.npos &&
           !mark.starts_with(std::string_view(held_).substr(held_.size() - kept)))
      --kept;
    text = held_.substr(0, held_.size() - kept);
    held_.erase(0, text.size());
  }
  while (skip_mark()) {
  }
  if (marks_ > 0 && !in_mark_line_ && !route_.mark.starts_with(held_)) route_.mark.clear();
  if (route_.mark.empty() && !in_mark_line_) text += std::exchange(held_, {});
  return text;
}

// Removes the mark, or the rest of its line, which ends with "\r\n" on a terminal, from what is
// held.
bool RankStream::skip_mark() {
  if (in_mark_line_) {
    const auto end = held_.find_first_not_of('\r');
    if (end == held_.npos) return false;
    held_.erase(0, held_[end] == '\n' ? end + 1 : end);
    in_mark_line_ = false;
    return true;
  }
  if (route_.mark.empty() || !held_.starts_with(route_.mark)) return false;
  held_.erase(0, route_.mark.size());
  in_mark_line_ = true;
  ++marks_;
  output_.mark_seen(this);
  return true;
}

void RankStream::expect_no_mark() {
  route_.mark.clear();
  if (!in_mark_line_ && !held_.empty()) pass_on(std::exchange(held_, {}));
}

void RankStream::pass_on(std::string_view bytes) {
  bytes_ += bytes.size();
  output_.bytes_read(bytes.size());
  if (log_) log_->append(bytes);
  tail_.append(bytes);
  if (!route_.console && !filtered_) return;
  if (route_.raw && !filtered_) {
    route_.console->write(bytes);
    return;
  }
  splitter_.feed(bytes, [this](std::string_view lines) { to_console(lines, true); });
  if (splitter_.has_partial()) output_.schedule_partial_flush();
}

void RankStream::to_console(std::string_view lines, bool whole) {
  if (filtered_) filter(lines);
  if (!route_.console) return;
  output_.begin_output(*route_.console, this, !whole);
  if (route_.prefix.empty())
    route_.console->write(lines);
  else
    route_.console->write(with_prefix(route_.prefix, lines));
}

void RankStream::flush_partial() {
  splitter_.finish("", [this](std::string_view text) { to_console(text, false); });
}

void RankStream::finish() {
  if (ended_) return;
  ended_ = true;
  if (!held_.empty()) pass_on(std::exchange(held_, {}));
  const std::string_view end = route_.raw ? "" : "\n";
  splitter_.finish(end, [this](std::string_view lines) { to_console(lines, true); });
  output_.stream_ended(this);
  log_.reset();
  filtered_.reset();
  boost::system::error_code ignored;
  source_.close(ignored);
}

bool RankStream::release_memory() {
  splitter_.release_memory();
  bool empty = true;
  for (const auto& file : {log_.get(), filtered_.get()})
    if (file) empty = file->release_memory() && empty;
  return empty;
}

void RankStream::filter(std::string_view lines) {
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    const auto line = lines.substr(0, end);
    for (const auto& needle : route_.needles)
      if (line.find(needle) != std::string_view::npos) {
        filtered_->append(with_prefix(route_.prefix, line));
        break;
      }
    lines.remove_prefix(end);
  }
}

}  // namespace mgpu::launcher
