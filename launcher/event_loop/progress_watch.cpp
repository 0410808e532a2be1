#include "launcher/event_loop/progress_watch.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::milliseconds kShortest = 50ms, kLongest = 5s;

}  // namespace

ProgressWatch::ProgressWatch(boost::asio::io_context& io,
                             std::optional<std::chrono::milliseconds> limit, ActivitySigns signs,
                             Callbacks callbacks)
    : limit_(limit),
      callbacks_(std::move(callbacks)),
      watch_(limit),
      activity_(signs, limit),
      look_(io),
      evidence_(io),
      read_(std::chrono::steady_clock::now()) {}

void ProgressWatch::begin_attempt(const std::string& host) {
  watch_.begin_attempt(host);
  activity_.begin_attempt(host, now());
  times_.begin_attempt();
  reported_ = false;
  hang_.reset();
  pending_ = false;
  ++collecting_;
  evidence_.cancel();
  schedule();
}

void ProgressWatch::record(const Heartbeat& heartbeat) {
  const Time time = now();
  reported_ = true;
  watch_.record(heartbeat, time);
  if (const auto straggler = times_.record(heartbeat, time)) callbacks_.straggler(*straggler);
  schedule();
}

void ProgressWatch::rank_replaced(int rank) {
  times_.forget(rank);
  watch_.rank_replaced(rank, now());
  pending_ = false;
  ++collecting_;
  evidence_.cancel();
}

void ProgressWatch::forget(int rank) {
  watch_.forget(rank);
  times_.forget(rank);
}

void ProgressWatch::pause() {
  now();
  paused_ = true;
  look_.pause();
  evidence_.pause();
}

void ProgressWatch::resume() {
  read_ = std::chrono::steady_clock::now();
  paused_ = false;
  look_.resume();
  evidence_.resume();
}

// Much more time than the interval has passed only if this process did not run. Then the ranks may
// not have run either (a frozen container, a machine that swaps), so that time does not count.
// Neither does time in which ranks wait because nobody reads their output.
ProgressWatch::Time ProgressWatch::now() {
  const auto time = std::chrono::steady_clock::now();
  const auto passed = std::chrono::duration_cast<Time>(time - read_);
  read_ += passed;
  if (!paused_ && !callbacks_.held_up())
    now_ += scheduled_ ? std::min(passed, 2 * interval() + kShortest) : passed;
  return now_;
}

ProgressWatch::Time ProgressWatch::interval() const {
  return limit_ && *limit_ > Time(0) ? std::clamp<Time>(*limit_ / 8, kShortest, kLongest)
                                     : kLongest;
}

void ProgressWatch::schedule() {
  if ((!watch_.reported() && !watches_activity()) || std::exchange(scheduled_, true)) return;
  look_.start(interval(), [this] { look(); });
}

std::optional<std::chrono::milliseconds> ProgressWatch::idle() {
  if (!watches_activity()) return std::nullopt;
  return activity_.idle(now());
}

bool ProgressWatch::overdue(Time time) const {
  if (watches_activity()) return activity_.overdue(time);
  return watch_.overdue(time, !callbacks_.suspended().empty());
}

std::optional<Hang> ProgressWatch::find(Time time) const {
  const auto suspended = callbacks_.suspended();
  return watches_activity() ? activity_.find(time, suspended) : watch_.find(time, suspended);
}

void ProgressWatch::look() {
  const Time time = now();
  scheduled_ = false;
  if (!callbacks_.running()) return;  // the next attempt's first heartbeat schedules again
  schedule();
  if (watches_activity()) activity_.record(callbacks_.activity(), time);
  callbacks_.looked();
  const bool maybe = watches_activity() ? activity_.overdue(time)
                                        : watch_.overdue(time) || watch_.overdue(time, true);
  if (pending_ || hang_ || !maybe) return;
  callbacks_.read_waiting();
  const auto hang = find(time);
  if (!hang) return;
  pending_ = true;
  callbacks_.note(cause_of(*hang).text);
  const int collection = ++collecting_;
  evidence_.start(kEvidenceTime,
                  [this, collection, found = *hang] { conclude(collection, found); });
  callbacks_.collect_evidence(
      *hang, [this, collection](const Hang& found) { conclude(collection, found); });
}

void ProgressWatch::conclude(int collection, const Hang& hang) {
  if (collection != collecting_) return;
  ++collecting_;
  evidence_.cancel();
  pending_ = false;
  if (!callbacks_.running()) return;
  callbacks_.read_waiting();
  const Time time = now();
  if (watches_activity()) activity_.record(callbacks_.activity(), time);
  if (!overdue(time)) return callbacks_.note("ranks make progress again; the job continues");
  hang_ = hang;
  callbacks_.hung(hang);
  if (callbacks_.running()) hang_.reset();  // the rank has exited meanwhile; look again
}

}  // namespace mgpu::launcher
