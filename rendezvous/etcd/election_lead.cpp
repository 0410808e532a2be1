#include <algorithm>
#include <random>
#include <utility>

#include "rendezvous/etcd/election.hpp"

namespace mgpu::rendezvous::etcd {

using namespace std::chrono_literals;

namespace {

constexpr int kAlreadyExists = 9;  // etcd's "failed precondition", of a grant

}  // namespace

Election::Milliseconds Election::time_left() const {
  return std::max(1ms, std::chrono::duration_cast<Milliseconds>(times_.until() - BootClock::now()));
}

void Election::campaign(std::string address) {
  if (leading()) return;
  address_ = std::move(address);
  if (role_ == Role::observing) role_ = Role::standing;
  observe();
  if (has_read_) changed();
}

// All who stand learn at once that nobody leads; they need not ask at once.
void Election::stand() {
  role_ = Role::asking;
  std::random_device device;
  at(stand_timer_, Milliseconds(device() % 50), &Election::ask_for_leadership);
}

void Election::ask_for_leadership() {
  if (role_ != Role::asking) return;
  lease_ = Client::random_lease();
  times_ = {};
  const auto called = BootClock::now();
  client_.grant(lease_, settings_.lease, settings_.lease,
                [this, called, lease = lease_](const auto& outcome) {
                  if (role_ != Role::asking || lease != lease_) return;
                  const bool repeated = outcome.problem.code == kAlreadyExists;
                  if (outcome.problem && !repeated) return stand_again(outcome.problem);
                  times_.confirmed(called, repeated ? settings_.lease
                                                    : std::chrono::seconds(outcome.answer.ttl));
                  ask_with(lease);
                });
}

void Election::ask_with(std::int64_t lease) {
  client_.transact(stand_for(keys_, address_, lease), time_left(),
                   [this, lease](const auto& outcome) {
                     if (role_ == Role::asking && lease == lease_) have_asked(outcome);
                   });
}

void Election::have_asked(const Client::Outcome<TransactionAnswer>& outcome) {
  if (outcome.problem) return stand_again(outcome.problem);
  std::vector<KeyValue> keys;
  for (const auto& found : outcome.answer.found)
    keys.insert(keys.end(), found.begin(), found.end());
  view_.replace(keys, outcome.answer.header.revision);
  const auto& leader = view_.leader();
  // Whether this request or an earlier copy of it made us the leader is the same.
  if (leader && leader->lease == lease_ && times_.holds(BootClock::now()))
    return lead(leader->create_revision);
  stand_again({});
}

void Election::stand_again(const Problem& problem) {
  role_ = Role::standing;
  give_up(lease_);
  if (problem) {
    problem_ = problem.text;
    lasting_ = problem.lasting;
    if (!lasting_) at(read_timer_, 200ms, &Election::read);
  }
  tell();  // the next reading or event makes us stand
}

void Election::lead(std::int64_t term) {
  role_ = Role::leading;
  term_ = term;
  problem_.clear();
  lasting_ = false;
  keep_state_ = settings_.keep_state;
  state_lease_ = view_.state() ? view_.state()->lease : 0;
  check_time();
  if (role_ != Role::leading) return;
  renew();
  if (state_lease_ != 0) renew_state_lease();
  tell();
}

void Election::give_up(std::int64_t lease) {
  if (lease == 0) return;
  lost_lease_ = lease;
  lease_ = 0;
  client_.revoke(lease, settings_.lease, [](const auto&) {});  // it runs out in any case
}

void Election::stop_timers() {
  stand_timer_.cancel();
  renew_timer_.cancel();
  end_timer_.cancel();
  state_timer_.cancel();
}

void Election::lose() {
  role_ = Role::observing;
  stop_timers();
  give_up(lease_);
  tell();
  // Told first: whoever hears that nothing was saved knows already why.
  end_saves();
}

bool Election::leading() {
  if (role_ == Role::leading && !times_.holds(BootClock::now())) lose();
  return role_ == Role::leading;
}

void Election::check_time() {
  if (leading()) at(end_timer_, time_left(), &Election::check_time);
}

void Election::renew() {
  const auto wait = std::chrono::duration_cast<Milliseconds>(times_.renew_at() - BootClock::now());
  at(renew_timer_, std::max(wait, 50ms), &Election::send_renewal);
}

void Election::send_renewal() {
  if (!leading()) return;
  client_.keep_alive(lease_, time_left(), [this, lease = lease_](const auto& outcome) {
    if (leading() && lease == lease_) have_renewed(outcome);
  });
}

void Election::have_renewed(const Client::Outcome<LeaseAnswer>& outcome) {
  if (outcome.problem) return renew_again(outcome.problem);
  if (outcome.answer.ttl == 0) return lose();
  // A member of etcd that has just lost the majority goes on renewing leases for a second or two
  // (before 3.4.31 and 3.5.13), while another already lets them run out. Only a reading needs the
  // majority; if it answers in the same term of etcd's own leader, the renewal was that one's too.
  client_.range(keys_.folder, kMostJobKeys, time_left(),
                [this, lease = lease_, renewal = outcome](const auto& reading) {
                  if (leading() && lease == lease_) have_confirmed(renewal, reading);
                });
}

void Election::have_confirmed(const Client::Outcome<LeaseAnswer>& renewal,
                              const Client::Outcome<RangeAnswer>& reading) {
  if (reading.problem) return renew_again(reading.problem);
  problem_.clear();
  lasting_ = false;
  good_ = reading.sent;
  view_.replace(reading.answer.keys, reading.answer.header.revision);
  if (renewal.answer.header.raft_term == reading.answer.header.raft_term)
    times_.confirmed(renewal.sent, std::chrono::seconds(renewal.answer.ttl));
  check_time();
  if (role_ == Role::leading) renew();
  changed();
}

void Election::renew_again(const Problem& problem) {
  problem_ = problem.text;
  lasting_ = problem.lasting;
  tell();
  renew();
}

void Election::resign(std::function<void()> done) {
  const auto lease = std::exchange(lease_, 0);
  role_ = Role::observing;
  stop_timers();
  if (lease != 0) lost_lease_ = lease;
  tell();
  end_saves();
  if (lease == 0) {
    if (done) later(std::move(done));
    return;
  }
  client_.revoke(lease, settings_.lease, [this, done = std::move(done)](const auto&) mutable {
    if (done) later(std::move(done));
  });
}

}  // namespace mgpu::rendezvous::etcd
