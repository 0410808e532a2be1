#include "rendezvous/etcd/election.hpp"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

namespace mgpu::rendezvous::etcd {

using boost::system::error_code;
using namespace std::chrono_literals;

namespace {

Access with_limits(Access access, std::chrono::seconds lease) {
  // Several members can be tried within the two thirds of a lease that are left for a renewal.
  access.attempt_limit =
      std::clamp<std::chrono::milliseconds>(std::chrono::milliseconds(lease) / 5, 500ms, 2000ms);
  return access;
}

}  // namespace

Election::Election(boost::asio::io_context& io, Settings settings)
    : io_(io),
      settings_(std::move(settings)),
      keys_(JobKeys::of(settings_.job)),
      client_(io, with_limits(settings_.access, settings_.lease)),
      view_(keys_),
      good_(BootClock::now()),
      read_timer_(io),
      stand_timer_(io),
      renew_timer_(io),
      end_timer_(io),
      keep_state_(settings_.keep_state),
      state_timer_(io) {}

Election::~Election() = default;

void Election::at(boost::asio::steady_timer& timer, Milliseconds when, void (Election::*what)()) {
  timer.expires_after(when);
  timer.async_wait([this, what, alive = std::weak_ptr(alive_)](const error_code& error) {
    if (!error && !alive.expired()) (this->*what)();
  });
}

void Election::later(std::function<void()> function) {
  boost::asio::post(io_, [alive = std::weak_ptr(alive_), function = std::move(function)] {
    if (!alive.expired()) function();
  });
}

Election::Milliseconds Election::reading_period() const {
  return std::max<Milliseconds>(lease(), 1s);
}

void Election::observe() {
  if (std::exchange(observing_, true)) return;
  read();
}

void Election::read() {
  if (std::exchange(reading_, true)) return;
  client_.range(keys_.folder, kMostJobKeys, reading_period(),
                [this](const auto& outcome) { have_read(outcome); });
}

void Election::have_read(const Client::Outcome<RangeAnswer>& outcome) {
  reading_ = false;
  if (outcome.problem) {
    problem_ = outcome.problem.text;
    lasting_ = outcome.problem.lasting;
    at(read_timer_, lasting_ ? reading_period() : 100ms, &Election::read);
    return tell();
  }
  problem_.clear();
  lasting_ = false;
  has_read_ = true;
  good_ = outcome.sent;
  const auto revision = outcome.answer.header.revision;
  if (revision < read_) {  // readings never go back: this etcd was begun anew, without its data
    view_ = JobView(keys_);
    watch_.reset();
  }
  read_ = revision;
  view_.replace(outcome.answer.keys, revision);
  if (!watch_)
    follow(revision + 1);
  else if (watch_->member() != client_.current_member() || watch_->seen() < expected_)
    watch_->move_on();
  expected_ = view_.newest();
  at(read_timer_, reading_period(), &Election::read);
  changed();
}

void Election::follow(std::int64_t from_revision) {
  watch_ = client_.watch(keys_.folder, from_revision,
                         {.on_events =
                              [this](const auto& events) {
                                for (const auto& event : events) view_.apply(event);
                                changed();
                              },
                          .on_lost =
                              [this](const std::string&) {
                                watch_.reset();
                                at(read_timer_, 100ms, &Election::read);
                              }});
}

void Election::changed() {
  const auto& leader = view_.leader();
  if (role_ == Role::leading && (!leader || leader->create_revision != term_)) return lose();
  if (role_ == Role::standing && has_read_ && !leader) stand();
  tell();
}

// A leader key that nobody stands behind any more: one that we have given up, or that was left by
// whoever had our address before us.
bool Election::is_gone(const KeyValue& leader) const {
  return (lost_lease_ != 0 && leader.lease == lost_lease_) || leader.value == address_;
}

void Election::tell() {
  if (!has_read_ && role_ != Role::leading && problem_.empty()) return;
  Seen seen{.us = role_ == Role::leading,
            .problem = problem_,
            .lasting = lasting_,
            .good_until = problem_.empty() ? BootClock::time_point() : good_};
  if (const auto& leader = view_.leader(); leader && (seen.us || !is_gone(*leader))) {
    seen.leader = leader->value;
    seen.term = leader->create_revision;
  }
  if (view_.state()) seen.state = view_.state()->value;
  if (told_ == seen) return;
  told_ = seen;
  later([this, seen = std::move(seen)] {
    if (const auto told = on_change_) told(seen);
  });
}

}  // namespace mgpu::rendezvous::etcd
