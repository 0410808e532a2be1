#pragma once

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "launcher/lifecycle/activity_watch.hpp"
#include "launcher/lifecycle/hang_watch.hpp"
#include "launcher/lifecycle/step_times.hpp"
#include "launcher/ranks/pausable_timer.hpp"

namespace mgpu::launcher {

// Watches the progress of the ranks of this node, and ends an attempt that hangs:
//
//   hang found --> evidence is collected while all processes still run --> the attempt fails
//
// If a rank makes progress in the meantime, nothing fails. Stragglers are reported, once per
// attempt. It checks the ranks at a low rate, and only while one of them reports its progress.
// Ranks that report nothing are judged by their activity, if that was chosen.
class ProgressWatch {
 public:
  using Done = std::function<void(Hang)>;
  struct Callbacks {
    // Records what ranks have sent and nobody has read yet.
    std::function<void()> read_waiting;
    // What the ranks have done since they started.
    std::function<ActivitySample()> activity;
    // The ranks that a signal or a debugger has suspended.
    std::function<std::vector<int>()> suspended;
    // Whether ranks may have to wait because nobody reads their output.
    std::function<bool()> held_up;
    // Whether the ranks of the attempt run, and nobody has stopped them.
    std::function<bool()> running;
    // Starts to collect evidence of the hang, without blocking, then calls `done`: with the same
    // hang, or with one that names another rank. After kEvidenceTime it is not waited for.
    std::function<void(const Hang& hang, Done done)> collect_evidence;
    // The attempt fails because of this hang.
    std::function<void(const Hang&)> hung;
    std::function<void(const Straggler&)> straggler;
    // At every look, at a low rate: what progress() returns may have changed.
    std::function<void()> looked;
    std::function<void(std::string_view)> note;
  };
  static constexpr std::chrono::seconds kEvidenceTime{10};

  // For the limit see HangWatch.
  ProgressWatch(boost::asio::io_context& io, std::optional<std::chrono::milliseconds> limit,
                ActivitySigns signs, Callbacks callbacks);
  ProgressWatch(const ProgressWatch&) = delete;
  ProgressWatch& operator=(const ProgressWatch&) = delete;

  // `host`: see HangWatch.
  void begin_attempt(const std::string& host);
  void record(const Heartbeat& heartbeat);
  // A new process takes the rank's place, and the others wait for it.
  void rank_replaced(int rank);
  // The rank has exited or does not report any more.
  void forget(int rank);
  // How long no rank of the whole job has been active, if it has other nodes.
  void set_job_idle(std::chrono::milliseconds idle) { activity_.set_job_idle(idle); }
  // While the job is suspended, no time passes.
  void pause();
  void resume();

  // The progress of the ranks that report it.
  std::vector<RankProgress> progress() const { return times_.progress(); }
  // How long no rank of this node has been active; empty: that is not watched.
  std::optional<std::chrono::milliseconds> idle();
  // Why this attempt failed, if it hung.
  const std::optional<Hang>& hang() const { return hang_; }

 private:
  using Time = HangWatch::Time;

  Time now();
  Time interval() const;
  void schedule();
  void look();
  bool watches_activity() const { return activity_.enabled() && !reported_; }
  bool overdue(Time time) const;
  std::optional<Hang> find(Time time) const;
  void conclude(int collection, const Hang& hang);

  std::optional<Time> limit_;
  Callbacks callbacks_;
  HangWatch watch_;
  ActivityWatch activity_;
  StepTimes times_;
  PausableTimer look_, evidence_;
  std::chrono::steady_clock::time_point read_;  // when now() was last called
  Time now_{0};
  bool scheduled_ = false, paused_ = false;
  bool reported_ = false;  // a rank has sent a heartbeat in this attempt
  bool pending_ = false;   // a hang was found, and its evidence is being collected
  int collecting_ = 0;     // changes whenever evidence is no longer waited for
  std::optional<Hang> hang_;
};

}  // namespace mgpu::launcher
