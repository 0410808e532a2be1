#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/etcd/election.hpp"

namespace mgpu::rendezvous::etcd {

using namespace std::chrono_literals;

namespace {

constexpr int kMostTries = 6;

}  // namespace

void Election::save(std::string state, std::function<void(bool)> done) {
  if (state.size() > kLargestState)
    throw std::runtime_error(fmt::format("a job's state of {} bytes is larger than etcd's limit {}",
                                         state.size(), kLargestState));
  if (!leading()) {
    if (done) post_later([done = std::move(done)] { done(false); });
    return;
  }
  if (!next_) next_.emplace();
  next_->state = std::move(state);
  if (done) next_->done.push_back(std::move(done));
  start_next_save();
}

void Election::save_end(std::string state, std::chrono::seconds keep,
                        std::function<void(bool)> done) {
  keep_state_ = keep;
  state_lease_ = 0;
  save(std::move(state), std::move(done));
}

void Election::start_next_save() {
  if (current_ || !next_) return;
  current_ = std::exchange(next_, std::nullopt);
  send_save();
}

void Election::send_save() {
  if (!leading()) return;
  if (state_lease_ == 0) return grant_state_lease();
  const auto& before = view_.state();
  // A state is signed with the revision that created its key. If there is no key yet, an empty
  // value creates it, and the state follows.
  const bool creates = !before && settings_.signer.has_secret();
  KeyValue write{.key = keys_.state,
                 .value = creates ? std::string() : current_->state,
                 .create_revision = before ? before->create_revision : 0,
                 .version = before ? before->version + 1 : 1,
                 .lease = state_lease_};
  if (!creates) write.value = settings_.signer.sign(write);
  client_.transact(
      save_transaction(keys_, term_, view_.state_revision(), write.value, state_lease_),
      time_left(), [this, term = term_, write, creates](const auto& outcome) {
        if (!leading() || term != term_ || !current_) return;
        if (outcome.problem.code == Problem::kNotFound) state_lease_ = 0;
        if (!outcome.problem && outcome.answer.succeeded) {
          KeyValue written = write;
          written.mod_revision = outcome.answer.header.revision;
          if (written.version == 1) written.create_revision = written.mod_revision;
          view_.apply({.key = std::move(written)});
          if (creates) return retry_save();
        }
        on_saved(outcome);
      });
}

void Election::on_saved(const Client::Outcome<TransactionAnswer>& outcome) {
  if (outcome.problem) {
    if (outcome.problem.code == Problem::kNotFound) return retry_save();
    problem_ = outcome.problem.text;
    permanent_ = outcome.problem.permanent;
    report();
    return finish_save(false);
  }
  if (!outcome.answer.succeeded) {
    std::vector<KeyValue> keys;
    for (const auto& found : outcome.answer.found)
      keys.insert(keys.end(), found.begin(), found.end());
    view_.replace(keys, outcome.answer.header.revision);
    on_view_changed();
    if (!leading()) return;
    // An earlier copy of the request may have succeeded, or an earlier save that was considered
    // failed.
    if (accepted_state() != current_->state) return retry_save();
  }
  report();
  finish_save(true);
}

void Election::retry_save() {
  if (++current_->tries < kMostTries) return send_save();
  finish_save(false);
}

void Election::finish_save(bool saved) {
  const auto ended = std::exchange(current_, std::nullopt);
  for (const auto& done : ended->done) post_later([done, saved] { done(saved); });
  start_next_save();
}

void Election::fail_saves() {
  for (auto* save : {&current_, &next_}) {
    if (const auto ended = std::exchange(*save, std::nullopt))
      for (const auto& done : ended->done) post_later([done] { done(false); });
  }
}

void Election::grant_state_lease() {
  const auto lease = Client::random_lease();
  client_.grant(lease, keep_state_, time_left(), [this, lease, term = term_](const auto& outcome) {
    if (!leading() || term != term_ || !current_) return;
    if (outcome.problem && outcome.problem.code != Problem::kAlreadyExists) {
      problem_ = outcome.problem.text;
      permanent_ = outcome.problem.permanent;
      report();
      return finish_save(false);
    }
    state_lease_ = lease;
    start_timer(state_timer_, Milliseconds(keep_state_) / 4, &Election::renew_state_lease);
    send_save();
  });
}

void Election::renew_state_lease() {
  if (!leading() || state_lease_ == 0) return;
  client_.keep_alive(state_lease_, time_left(), [this, lease = state_lease_](const auto& outcome) {
    if (!leading() || lease != state_lease_) return;
    if (!outcome.problem && outcome.answer.ttl == 0) {
      // It expired before we took over, or was revoked: save the state again.
      state_lease_ = 0;
      if (auto state = accepted_state(); state && !current_ && !next_) save(std::move(*state), {});
      return;
    }
    const auto ttl = outcome.problem ? keep_state_ : std::chrono::seconds(outcome.answer.ttl);
    start_timer(state_timer_, std::min<Milliseconds>(Milliseconds(ttl) / 4, 1h),
                &Election::renew_state_lease);
  });
}

}  // namespace mgpu::rendezvous::etcd
