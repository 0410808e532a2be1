#include "rendezvous/etcd/election.hpp"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

namespace mgpu::rendezvous::etcd {

using boost::system::error_code;
using namespace std::chrono_literals;

namespace {

Access with_limits(Access access, std::chrono::seconds lease) {
  // So that several members can be tried in the two thirds of a lease that remain for a renewal.
  access.attempt_limit =
      std::clamp<std::chrono::milliseconds>(std::chrono::milliseconds(lease) / 5, 500ms, 2000ms);
  return access;
}

}  // namespace

Election::Election(boost::asio::io_context& io, Settings settings)
    : io_(io),
      settings_(std::move(settings)),
      keys_(JobKeys::of(settings_.prefix, settings_.job)),
      client_(io, with_limits(settings_.access, settings_.lease)),
      view_(keys_),
      answered_at_(BootClock::now()),
      read_timer_(io),
      request_timer_(io),
      renew_timer_(io),
      lease_timer_(io),
      keep_state_(settings_.keep_state),
      state_timer_(io) {}

Election::~Election() = default;

void Election::start_timer(boost::asio::steady_timer& timer, Milliseconds when,
                           void (Election::*what)()) {
  timer.expires_after(when);
  timer.async_wait([this, what, alive = std::weak_ptr(alive_)](const error_code& error) {
    if (!error && !alive.expired()) (this->*what)();
  });
}

void Election::post_later(std::function<void()> function) {
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
  client_.range(keys_.folder, kMaxJobKeys, reading_period(),
                [this](const auto& outcome) { on_read(outcome); });
}

void Election::on_read(const Client::Outcome<RangeAnswer>& outcome) {
  reading_ = false;
  if (outcome.problem) {
    problem_ = outcome.problem.text;
    permanent_ = outcome.problem.permanent;
    start_timer(read_timer_, permanent_ ? reading_period() : 100ms, &Election::read);
    return report();
  }
  problem_.clear();
  permanent_ = false;
  has_read_ = true;
  answered_at_ = outcome.sent;
  const auto revision = outcome.answer.header.revision;
  if (revision <
      read_revision_) {  // revisions never decrease: this etcd was restarted without its data
    view_ = JobView(keys_);
    watch_.reset();
  }
  read_revision_ = revision;
  view_.replace(outcome.answer.keys, revision);
  if (!watch_)
    start_watch(revision + 1);
  else if (watch_->member() != client_.current_member() ||
           watch_->last_revision() < expected_revision_)
    watch_->reconnect();
  expected_revision_ = view_.newest_revision();
  start_timer(read_timer_, reading_period(), &Election::read);
  on_view_changed();
}

void Election::start_watch(std::int64_t from_revision) {
  watch_ = client_.watch(keys_.folder, from_revision,
                         {.on_events =
                              [this](const auto& events) {
                                for (const auto& event : events) view_.apply(event);
                                on_view_changed();
                              },
                          .on_lost =
                              [this](const std::string&) {
                                watch_.reset();
                                start_timer(read_timer_, 100ms, &Election::read);
                              }});
}

void Election::on_view_changed() {
  const auto& leader = view_.leader();
  if (role_ == Role::leading && (!leader || leader->create_revision != term_))
    return lose_leadership();
  if (role_ == Role::candidate && has_read_ && !leader) request_soon();
  report();
}

// Whether a leader key has no living leader: we have given it up, or it is left by a previous
// process with our address.
bool Election::is_abandoned(const KeyValue& leader, const Signer::Checked& checked) const {
  return (abandoned_lease_ != 0 && leader.lease == abandoned_lease_) ||
         (checked.verdict == Signer::Verdict::accepted && checked.value == address_);
}

// An empty value is what a leader creates the key with.
std::optional<std::string> Election::accepted_state() const {
  const auto& state = view_.state();
  if (!state || state->value.empty()) return std::nullopt;
  auto checked = settings_.signer.check(*state);
  if (checked.verdict != Signer::Verdict::accepted) return std::nullopt;
  return std::move(checked.value);
}

void Election::report() {
  if (!has_read_ && role_ != Role::leading && problem_.empty()) return;
  Status status{.is_leader = role_ == Role::leading,
                .problem = problem_,
                .permanent = permanent_,
                .answered_at = problem_.empty() ? BootClock::time_point() : answered_at_};
  if (const auto& leader = view_.leader()) {
    const auto checked = settings_.signer.check(*leader);
    if (status.is_leader || !is_abandoned(*leader, checked)) {
      status.leader = status.is_leader ? address_ : checked.value;
      status.term = leader->create_revision;
      status.leader_rejected = rejection_text(keys_.leader, checked.verdict);
    }
  }
  status.state = accepted_state();
  if (const auto& state = view_.state(); state && !state->value.empty())
    status.state_rejected = rejection_text(keys_.state, settings_.signer.check(*state).verdict);
  if (reported_ == status) return;
  reported_ = status;
  post_later([this, status = std::move(status)] {
    if (const auto callback = on_change_) callback(status);
  });
}

}  // namespace mgpu::rendezvous::etcd
