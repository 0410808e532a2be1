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
#include "rendezvous/etcd/job_view.hpp"

namespace mgpu::rendezvous::etcd {

// A state on its way to etcd, and whom to tell.
struct PendingSave {
  std::string state;
  std::vector<std::function<void(bool)>> done;
  int tries = 0;
};

// Who leads a job, by a leased key in etcd, and the one value that the leader must not lose. For
// one thread; nothing blocks.
//
//   observing --campaign()--> standing --(nobody leads, and we are first)--> leading
//   leading --(the lease may be over, or etcd says that it is; resign())--> observing
//
// Leadership is fenced by time: we know that we no longer lead before another can, counted from
// when the last good renewal was sent; a renewal is good when a reading after it, which needs the
// majority of etcd's members, confirms it. It is fenced at etcd as well: what a former leader
// saves, or a repetition of an old request, changes nothing.
class Election {
 public:
  struct Settings {
    Access access;  // its attempt_limit is ours to choose
    std::string job;
    // How long after its last sign a leader is replaced. etcd has a minimum (2 s as it is shipped)
    // and says what it made of it.
    std::chrono::seconds lease{5};
    // How long the state stays when nobody leads any more.
    std::chrono::seconds keep_state{300};
  };

  struct Status {
    bool is_leader = false;            // we lead. Ask leading() before acting on it: time goes on
    std::string leader;                // the address of who leads; empty: nobody does
    std::int64_t term = 0;             // of this leader: larger than that of every leader before
    std::optional<std::string> state;  // what was saved last
    std::string problem;     // why etcd cannot be asked, and so the rest may be old; empty: it can
    bool permanent = false;  // the problem is one of user, password or rights
    BootClock::time_point answered_at;  // with a problem: when etcd answered last

    friend bool operator==(const Status&, const Status&) = default;
  };

  static constexpr std::size_t kLargestState = 512 << 10;

  // Throws std::runtime_error with one line when the settings cannot be used at all.
  Election(boost::asio::io_context& io, Settings settings);
  // Calls nothing any more. A leader's lease is not given back: it runs out.
  ~Election();
  Election(const Election&) = delete;
  Election& operator=(const Election&) = delete;

  // Called from the loop, never from within a call of ours, for the first answer of etcd and for
  // every change after it.
  void on_change(std::function<void(const Status&)> on_change) {
    on_change_ = std::move(on_change);
  }

  void observe();  // begins to follow who leads
  // Observes, and stands for election with this "host:port" until we have led or resigned.
  // Nothing changes while we lead.
  void campaign(std::string address);
  // Whether we stand for election, or lead.
  bool is_candidate() const { return role_ != Role::observing; }
  // Whether we lead at this moment. It may be what finds out that we do not.
  bool leading();
  // Saves a state in the place of the one before. done(false): it is not known to be saved; when we
  // do not lead, it never will be. When calls overlap only the last state may ever be seen.
  void save(std::string state, std::function<void(bool)> done);
  // Saves the state a job ended with: it stays for `keep`, for those who come late, and no longer.
  void save_end(std::string state, std::chrono::seconds keep, std::function<void(bool)> done);
  // Stops standing or leading and gives the lease back, so that another can lead at once; done when
  // etcd knows, or cannot be told.
  void resign(std::function<void()> done = {});

  // What a lease really lasts, once it is known.
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
  void fail_saves();  // all, without success

  Milliseconds time_left() const;  // of our lease, never 0
  Milliseconds reading_period() const;
  bool is_abandoned(const KeyValue& leader) const;
  // For timers and posts: they may be on their way already when we are destroyed.
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
  BootClock::time_point answered_at_;  // when etcd answered last
  bool observing_ = false;
  bool has_read_ = false;
  bool reading_ = false;

  boost::asio::steady_timer read_timer_;
  std::unique_ptr<Watch> watch_;
  std::int64_t read_revision_ = 0;  // the revision of the last reading
  std::int64_t expected_revision_ =
      0;  // a change that the watch must have told by the next reading

  Role role_ = Role::observing;
  std::string address_;
  std::int64_t lease_ = 0;            // of our leadership, or of our try
  std::int64_t abandoned_lease_ = 0;  // a leader key on it is one that we have given up
  std::int64_t term_ = 0;
  LeaseTimes times_;
  boost::asio::steady_timer request_timer_;
  boost::asio::steady_timer renew_timer_;
  boost::asio::steady_timer lease_timer_;  // of our lease

  std::int64_t state_lease_ = 0;  // 0: none is known to be there
  std::chrono::seconds keep_state_;
  boost::asio::steady_timer state_timer_;
  std::optional<PendingSave> current_;
  std::optional<PendingSave> next_;

  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace mgpu::rendezvous::etcd
