#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/etcd/client.hpp"
#include "rendezvous/etcd/election_status.hpp"
#include "rendezvous/etcd/job_view.hpp"
#include "rendezvous/etcd/signer.hpp"

namespace mgpu::rendezvous::etcd {

// A state that is being saved to etcd, and the callbacks to call afterwards.
struct PendingSave {
  std::string state;
  std::vector<std::function<void(bool)>> done;
  int tries = 0;
};

// Elects the leader of a job with a leased key in etcd, and saves the one value that a leader must
// not lose. For one thread; nothing blocks.
//
//   observing --campaign()--> candidate --(there is no leader, and we are first)--> leading
//   leading --(the lease has or may have expired; resign())--> observing
//
// Leadership is fenced by time: this side knows that it no longer leads before another can lead. It
// counts the lease from when the last confirmed renewal was sent. A renewal is confirmed by a read
// that follows it, because a read needs the majority of etcd's members. Leadership is fenced in
// etcd as well: a save of a former leader, or a repetition of an old request, has no effect.
class Election {
 public:
  struct Settings {
    Access access;            // attempt_limit is overwritten
    std::string prefix = {};  // of the keys of all jobs, such as "/mgpu-run/alice"
    std::string job;
    // Signs what is written, and decides what is accepted: a state that it rejects counts as not
    // there, and a leader that it rejects as one whose address is not known.
    Signer signer = {};
    // How long after its last renewal a leader is replaced. etcd enforces a minimum (2 s by
    // default); lease() returns the effective value.
    std::chrono::seconds lease{5};
    // How long the state is kept when there is no leader.
    std::chrono::seconds keep_state{300};
  };

  using Status = ElectionStatus;

  static constexpr std::size_t kLargestState = 512 << 10;

  // Throws std::runtime_error with a one-line message if the settings are unusable.
  Election(boost::asio::io_context& io, Settings settings);
  // Calls no callback any more. Does not revoke a leader's lease: it expires.
  ~Election();
  Election(const Election&) = delete;
  Election& operator=(const Election&) = delete;

  // Sets the callback for etcd's first answer and for every change after it. It is called from the
  // event loop, never from inside a call to this object.
  void on_change(std::function<void(const Status&)> on_change) {
    on_change_ = std::move(on_change);
  }

  void observe();  // starts to follow who the leader is
  // Observes, and is a candidate with this "host:port" until it has led or resigned. Has no effect
  // while leading.
  void campaign(std::string address);
  // Whether this side is a candidate or the leader.
  bool is_candidate() const { return role_ != Role::observing; }
  // Whether this side leads right now. If the lease has expired, this call ends the leadership.
  bool leading();
  // Replaces the saved state. done(false): it is not known to be saved; if this side does not lead,
  // it never will be. If calls overlap, etcd may only ever see the last state.
  void save(std::string state, std::function<void(bool)> done);
  // Saves the final state of a job. etcd keeps it for `keep`, for agents that reconnect late.
  void save_end(std::string state, std::chrono::seconds keep, std::function<void(bool)> done);
  // Stops being a candidate or leader and revokes the lease, so that another can lead at once.
  // Calls `done` when etcd has revoked it or cannot be reached.
  void resign(std::function<void()> done = {});

  // The effective duration of a lease, once known.
  std::chrono::seconds lease() const {
    return times_.ttl().count() ? times_.ttl() : settings_.lease;
  }

 private:
  enum class Role { observing, candidate, requesting, leading };
  using Milliseconds = std::chrono::milliseconds;

  void read();
  void on_read(const Client::Outcome<RangeAnswer>& outcome);
  void start_watch(std::int64_t from_revision);
  void on_view_changed();
  void report();

  void request_soon();
  void request_leadership();
  void write_leader_key(std::int64_t lease);
  void on_leadership_answer(const Client::Outcome<TransactionAnswer>& outcome);
  void retry_candidacy(const Problem& problem);
  void become_leader(std::int64_t term);
  void abandon(std::int64_t lease);
  void lose_leadership();
  void check_lease();
  void stop_timers();
  void schedule_renewal();
  void send_renewal();
  void on_renewed(const Client::Outcome<LeaseAnswer>& outcome);
  void on_confirmed(const Client::Outcome<LeaseAnswer>& renewal,
                    const Client::Outcome<RangeAnswer>& reading);
  void retry_renewal(const Problem& problem);

  void grant_state_lease();
  void renew_state_lease();
  void start_next_save();
  void send_save();
  void on_saved(const Client::Outcome<TransactionAnswer>& outcome);
  void retry_save();
  void finish_save(bool saved);
  void fail_saves();  // calls all pending callbacks with false

  Milliseconds time_left() const;  // until our lease expires; never 0
  Milliseconds reading_period() const;
  bool is_abandoned(const KeyValue& leader, const Signer::Checked& checked) const;
  // The saved state; nothing if there is none, or if it is rejected.
  std::optional<std::string> accepted_state() const;
  // Wrappers for timers and posts, which may already be queued when this object is destroyed.
  void start_timer(boost::asio::steady_timer& timer, Milliseconds when, void (Election::*what)());
  void post_later(std::function<void()> function);

  boost::asio::io_context& io_;
  Settings settings_;
  JobKeys keys_;
  Client client_;
  JobView view_;
  std::function<void(const Status&)> on_change_;
  std::optional<Status> reported_;
  std::string problem_;
  bool permanent_ = false;
  BootClock::time_point answered_at_;  // when etcd last answered
  bool observing_ = false;
  bool has_read_ = false;
  bool reading_ = false;

  boost::asio::steady_timer read_timer_;
  std::unique_ptr<Watch> watch_;
  std::int64_t read_revision_ = 0;  // of the last read
  // A change that the watch must have reported by the next read.
  std::int64_t expected_revision_ = 0;

  Role role_ = Role::observing;
  std::string address_;
  std::int64_t lease_ = 0;            // of our leadership, or of our attempt to lead
  std::int64_t abandoned_lease_ = 0;  // a leader key on it is one that we have given up
  std::int64_t term_ = 0;
  LeaseTimes times_;
  boost::asio::steady_timer request_timer_;
  boost::asio::steady_timer renew_timer_;
  boost::asio::steady_timer lease_timer_;  // expiry of our lease

  std::int64_t state_lease_ = 0;  // 0: none is known to be there
  std::chrono::seconds keep_state_;
  boost::asio::steady_timer state_timer_;
  std::optional<PendingSave> current_;
  std::optional<PendingSave> next_;

  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace mgpu::rendezvous::etcd
