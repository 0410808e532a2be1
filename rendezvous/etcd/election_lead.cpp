#include <algorithm>
#include <random>
#include <utility>

#include "rendezvous/etcd/election.hpp"

namespace mgpu::rendezvous::etcd {

using namespace std::chrono_literals;

Election::Milliseconds Election::time_left() const {
  return std::max(1ms, std::chrono::duration_cast<Milliseconds>(times_.until() - BootClock::now()));
}

void Election::campaign(std::string address) {
  if (leading()) return;
  address_ = std::move(address);
  if (role_ == Role::observing) role_ = Role::candidate;
  observe();
  if (has_read_) on_view_changed();
}

// All candidates learn at the same time that there is no leader; spread their requests.
void Election::request_soon() {
  role_ = Role::requesting;
  std::random_device device;
  start_timer(request_timer_, Milliseconds(device() % 50), &Election::request_leadership);
}

void Election::request_leadership() {
  if (role_ != Role::requesting) return;
  lease_ = Client::random_lease();
  times_ = {};
  const auto called = BootClock::now();
  client_.grant(lease_, settings_.lease, settings_.lease,
                [this, called, lease = lease_](const auto& outcome) {
                  if (role_ != Role::requesting || lease != lease_) return;
                  const bool repeated = outcome.problem.code == Problem::kAlreadyExists;
                  if (outcome.problem && !repeated) return retry_candidacy(outcome.problem);
                  times_.confirmed(called, repeated ? settings_.lease
                                                    : std::chrono::seconds(outcome.answer.ttl));
                  write_leader_key(lease);
                });
}

void Election::write_leader_key(std::int64_t lease) {
  const auto value = settings_.signer.sign({.key = keys_.leader, .value = address_, .version = 1});
  client_.transact(leader_transaction(keys_, value, lease), time_left(),
                   [this, lease](const auto& outcome) {
                     if (role_ == Role::requesting && lease == lease_)
                       on_leadership_answer(outcome);
                   });
}

void Election::on_leadership_answer(const Client::Outcome<TransactionAnswer>& outcome) {
  if (outcome.problem) return retry_candidacy(outcome.problem);
  std::vector<KeyValue> keys;
  for (const auto& found : outcome.answer.found)
    keys.insert(keys.end(), found.begin(), found.end());
  view_.replace(keys, outcome.answer.header.revision);
  const auto& leader = view_.leader();
  // It does not matter whether this request or an earlier copy of it made us the leader.
  if (leader && leader->lease == lease_ && times_.is_valid(BootClock::now()))
    return become_leader(leader->create_revision);
  retry_candidacy({});
}

void Election::retry_candidacy(const Problem& problem) {
  role_ = Role::candidate;
  abandon(lease_);
  if (problem) {
    problem_ = problem.text;
    permanent_ = problem.permanent;
    if (!permanent_) start_timer(read_timer_, 200ms, &Election::read);
  }
  report();  // the next read or event triggers another attempt
}

void Election::become_leader(std::int64_t term) {
  role_ = Role::leading;
  term_ = term;
  problem_.clear();
  permanent_ = false;
  keep_state_ = settings_.keep_state;
  // The lease of a rejected state may be another client's.
  state_lease_ = accepted_state() ? view_.state()->lease : 0;
  check_lease();
  if (role_ != Role::leading) return;
  schedule_renewal();
  if (state_lease_ != 0) renew_state_lease();
  report();
}

void Election::abandon(std::int64_t lease) {
  if (lease == 0) return;
  abandoned_lease_ = lease;
  lease_ = 0;
  client_.revoke(lease, settings_.lease, [](const auto&) {});  // on failure it expires anyway
}

void Election::stop_timers() {
  request_timer_.cancel();
  renew_timer_.cancel();
  lease_timer_.cancel();
  state_timer_.cancel();
}

void Election::lose_leadership() {
  role_ = Role::observing;
  stop_timers();
  abandon(lease_);
  report();
  // Reported first, so that the callbacks of failed saves run after the change is known.
  fail_saves();
}

bool Election::leading() {
  if (role_ == Role::leading && !times_.is_valid(BootClock::now())) lose_leadership();
  return role_ == Role::leading;
}

void Election::check_lease() {
  if (leading()) start_timer(lease_timer_, time_left(), &Election::check_lease);
}

void Election::schedule_renewal() {
  const auto wait = std::chrono::duration_cast<Milliseconds>(times_.renew_at() - BootClock::now());
  start_timer(renew_timer_, std::max(wait, 50ms), &Election::send_renewal);
}

void Election::send_renewal() {
  if (!leading()) return;
  client_.keep_alive(lease_, time_left(), [this, lease = lease_](const auto& outcome) {
    if (leading() && lease == lease_) on_renewed(outcome);
  });
}

void Election::on_renewed(const Client::Outcome<LeaseAnswer>& outcome) {
  if (outcome.problem) return retry_renewal(outcome.problem);
  if (outcome.answer.ttl == 0) return lose_leadership();
  // An etcd member that has just lost the majority keeps renewing leases for a second or two
  // (before 3.4.31 and 3.5.13), while another member already lets them expire. Only a read needs
  // the majority. If the read has the same raft term, the renewal came from the valid leader as
  // well.
  client_.range(keys_.folder, kMaxJobKeys, time_left(),
                [this, lease = lease_, renewal = outcome](const auto& reading) {
                  if (leading() && lease == lease_) on_confirmed(renewal, reading);
                });
}

void Election::on_confirmed(const Client::Outcome<LeaseAnswer>& renewal,
                            const Client::Outcome<RangeAnswer>& reading) {
  if (reading.problem) return retry_renewal(reading.problem);
  problem_.clear();
  permanent_ = false;
  answered_at_ = reading.sent;
  view_.replace(reading.answer.keys, reading.answer.header.revision);
  if (renewal.answer.header.raft_term == reading.answer.header.raft_term)
    times_.confirmed(renewal.sent, std::chrono::seconds(renewal.answer.ttl));
  check_lease();
  if (role_ == Role::leading) schedule_renewal();
  on_view_changed();
}

void Election::retry_renewal(const Problem& problem) {
  problem_ = problem.text;
  permanent_ = problem.permanent;
  report();
  schedule_renewal();
}

void Election::resign(std::function<void()> done) {
  const auto lease = std::exchange(lease_, 0);
  role_ = Role::observing;
  stop_timers();
  if (lease != 0) abandoned_lease_ = lease;
  report();
  fail_saves();
  if (lease == 0) {
    if (done) post_later(std::move(done));
    return;
  }
  client_.revoke(lease, settings_.lease, [this, done = std::move(done)](const auto&) mutable {
    if (done) post_later(std::move(done));
  });
}

}  // namespace mgpu::rendezvous::etcd
