#include "launcher/nodes/leader.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "launcher/lifecycle/suspended_rank.hpp"
#include "launcher/nodes/progress_json.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/heartbeat.hpp"

namespace mgpu::launcher {
namespace {

using boost::asio::posix::stream_descriptor;
using rendezvous::boot_now;
using rendezvous::store::ServerOptions;

constexpr auto kRejectionNoteInterval = std::chrono::seconds(10);
// In addition to all nodes of the job, which may connect at once.
constexpr std::size_t kMaxPending = 1024;

// Strangers can cause handshakes, which must not use up the descriptors.
std::size_t most_handshakes(int nodes) {
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  return std::min<std::size_t>(kMaxPending + static_cast<std::size_t>(nodes),
                               descriptors.rlim_cur / 2);
}

const char* describe_close(rendezvous::Connections::CloseReason how) {
  switch (how) {
    case rendezvous::Connections::CloseReason::closed:
      return "its mgpu-run has ended";
    case rendezvous::Connections::CloseReason::broken:
      return "its connection broke";
    case rendezvous::Connections::CloseReason::silent:
      break;
  }
  return "no heartbeat within the keep-alive";
}

std::string text_of(const sockaddr& address) {
  sockaddr_storage storage{};
  const bool v6 = address.sa_family == AF_INET6;
  std::copy_n(reinterpret_cast<const char*>(&address), v6 ? 28 : 16,
              reinterpret_cast<char*>(&storage));
  return rendezvous::address_text(storage);
}

}  // namespace

Leader::Leader(boost::asio::io_context& io, Settings settings, Callbacks callbacks)
    : settings_(std::move(settings)),
      callbacks_(std::move(callbacks)),
      store_(ServerOptions{
          .reach = ServerOptions::Reach::network,
          .port = settings_.port,
          .admit = [this](int connection,
                          const sockaddr& peer) { return may_use_store(connection, peer); },
          .other_protocol =
              [this](rendezvous::UniqueFd socket, std::string_view bytes) {
                connections_.adopt(std::move(socket), bytes);
              }}),
      connections_(
          {.job = settings_.job,
           .credentials = settings_.credentials,
           .keep_alive = settings_.rules.keep_alive,
           .port = store_.port(),
           .max_pending = most_handshakes(settings_.rules.max_nodes)},
          {.joined = [](Connections::PeerId) {},
           .message = [this](
                          Connections::PeerId peer,
                          rendezvous::Message&& message) { on_message(peer, std::move(message)); },
           .store_records = [this](Connections::PeerId peer,
                                   std::string_view records) { on_store_records(peer, records); },
           .gone = [this](Connections::PeerId peer,
                          Connections::CloseReason how) { on_gone(peer, how); },
           .rejected = [this](const std::string& line) { on_rejected(line); }}),
      coordinator_(settings_.rules, settings_.counts, boot_now()),
      store_watch_(io, ::fcntl(store_.fd(), F_DUPFD_CLOEXEC, 3)),
      connections_watch_(io, ::fcntl(connections_.fd(), F_DUPFD_CLOEXEC, 3)),
      timer_(io),
      began_(boot_now()) {
  history_.target = settings_.target;
  history_.host = settings_.host;
  history_.run_id = settings_.job;
  history_.max_restarts = settings_.rules.limits.max_restarts;
  history_.renewed_by_progress = settings_.rules.limits.renewed_by_progress;
  serve(store_watch_, [this] { store_.serve_ready(); });
  serve(connections_watch_, [this] { connections_.serve_ready(); });
  arm_timer();
}

void Leader::serve(stream_descriptor& watch, std::function<void()> work) {
  watch.async_wait(stream_descriptor::wait_read,
                   [this, &watch, work = std::move(work),
                    alive = std::weak_ptr(alive_)](const boost::system::error_code& failed) {
                     if (failed || alive.expired()) return;
                     work();
                     flush_links();
                     check_agents_informed();
                     if (changed_) arm_timer();
                     serve(watch, work);
                   });
}

void Leader::arm_timer() {
  changed_ = false;
  const LeaderTime now = boot_now();
  LeaderTime next = now + connections_.tick_interval();
  if (const auto deadline = coordinator_.next_deadline()) next = std::min(next, *deadline);
  timer_.expires_after(std::max(next - now, LeaderTime(0)));
  timer_.async_wait([this, alive = std::weak_ptr(alive_)](const auto& cancelled) {
    if (cancelled || alive.expired()) return;
    on_timer();
    arm_timer();
  });
}

void Leader::on_timer() {
  write_trace();
  connections_.tick(boot_now());
  carry_out_all(coordinator_.tick(boot_now()));
  flush_links();
  check_agents_informed();
}

// For the next leader on this node, in case this one crashes.
void Leader::write_trace() {
  const auto now = boot_now();
  if (settings_.rules.elected || round_nodes_.empty() || coordinator_.over() ||
      (traced_at_.count() != 0 &&
       (now < traced_at_ + settings_.rules.keep_alive / 4 || !notes_.idle())))
    return;
  traced_at_ = now;
  notes_.run([job = settings_.job, port = port(), to_rejoin = to_rejoin_,
              time = coordinator_.lease_and_grace()] { trace_leader(job, port, to_rejoin, time); });
}

void Leader::on_message(Connections::PeerId peer, rendezvous::Message&& message) {
  const LeaderTime now = boot_now();
  if (const auto* join = std::get_if<rendezvous::Join>(&message)) {
    if (!agents_.emplace(peer, join->leads).second) return;
    carry_out_all(coordinator_.joined(peer, *join, now));
  } else if (const auto* failing = std::get_if<rendezvous::Failing>(&message)) {
    carry_out_all(coordinator_.failing(peer, *failing, now));
  } else if (const auto* end = std::get_if<rendezvous::NodeEnded>(&message)) {
    round_results_[peer] = attempt_from_json(end->details).ranks;
    progress_.end(peer);
    carry_out_all(coordinator_.ended(peer, *end, now));
  } else if (const auto* progress = std::get_if<rendezvous::Progress>(&message)) {
    return record_progress(peer, *progress);
  } else if (const auto* leave = std::get_if<rendezvous::Leave>(&message)) {
    carry_out_all(coordinator_.leaves(peer, *leave, now));
    connections_.close(peer);
  } else if (const auto* suspension = std::get_if<rendezvous::Suspension>(&message)) {
    carry_out_all(coordinator_.suspends(peer, suspension->suspended, now));
  } else if (std::holds_alternative<rendezvous::StatusRequest>(message)) {
    connections_.send(peer, rendezvous::StatusReply{status()});
    connections_.close(peer);
  } else if (const auto* relay = std::get_if<rendezvous::RelayStore>(&message)) {
    return open_link(peer, *relay);
  }
  changed_ = true;
}

// Of several new stragglers of a node, the slowest is described.
void Leader::record_progress(NodeId node, const rendezvous::Progress& progress) {
  if (progress.round != round_ || std::ranges::find(round_nodes_, node) == round_nodes_.end())
    return;
  if (progress.idle >= 0) {
    const auto now = boot_now();
    progress_.note_active(node, now - LeaderTime(progress.idle));
    const auto last = progress_.last_active(round_nodes_);
    connections_.send(node, rendezvous::JobIdle{round_, last ? (now - *last).count() : 0});
  }
  const auto found = progress_.record(node, progress_from_json(progress.ranks));
  if (found.empty()) return;
  auto line = straggler_line(*std::ranges::max_element(found, {}, &Straggler::busy_ms),
                             coordinator_.host_of(node));
  if (found.size() > 1)
    line += fmt::format("; {} more ranks of this node are stragglers", found.size() - 1);
  callbacks_.print_line(line);
}

// --- Store clients on other nodes

void Leader::open_link(Connections::PeerId peer, const rendezvous::RelayStore& request) {
  if (request.round != round_ || coordinator_.over() ||
      connections_.facts(peer).purpose != "store") {
    connections_.send(peer, rendezvous::Refusal{exit_status::kFailure, "its round is over"});
    return connections_.close(peer);
  }
  links_.try_emplace(peer, std::make_unique<rendezvous::store::RelayLink>(
                               store_, [this, peer] { links_with_output_.push_back(peer); }));
}

void Leader::on_store_records(Connections::PeerId peer, std::string_view records) {
  const auto link = links_.find(peer);
  if (link == links_.end()) throw rendezvous::ProtocolError("it sends store records too early");
  link->second->receive(records);
}

// Sends the replies that have gathered, also those that work for other clients has released.
void Leader::flush_links() {
  for (const auto peer : std::exchange(links_with_output_, {})) {
    const auto link = links_.find(peer);
    if (link == links_.end()) continue;
    const std::string records = std::exchange(link->second->output(), {});
    std::string_view rest = records;
    while (!rest.empty()) {
      const auto part = rendezvous::store::records_for_message(rest);
      connections_.send_store_records(peer, part);
      rest.remove_prefix(part.size());
    }
  }
}

void Leader::close_links() {
  for (const auto& [peer, link] : std::exchange(links_, {})) connections_.close(peer);
}

void Leader::on_gone(Connections::PeerId peer, Connections::CloseReason how) {
  links_.erase(peer);
  progress_.end(peer);
  if (agents_.erase(peer) == 0) return;
  const bool certainly_ended = how == Connections::CloseReason::closed;
  carry_out_all(coordinator_.gone(peer, connections_.facts(peer).last_heartbeat, certainly_ended,
                                  describe_close(how), boot_now()));
  changed_ = true;
}

// A port that is reachable from the internet gets many foreign connections: count, do not list
// them.
void Leader::on_rejected(const std::string& line) {
  ++rejections_;
  const auto now = boot_now();
  if (rejection_noted_at_.count() != 0 && now - rejection_noted_at_ < kRejectionNoteInterval)
    return;
  rejection_noted_at_ = now;
  callbacks_.print_line(
      rejections_ == 1 ? line : fmt::format("{} ({} connections so far)", line, rejections_));
}

void Leader::carry_out_all(Coordinator::Actions actions) {
  for (const auto& action : actions) std::visit([this](const auto& a) { carry_out(a); }, action);
}

void Leader::carry_out(const SendMessage& action) {
  if (const auto* end = std::get_if<rendezvous::End>(&action.message))
    return connections_.send(
        action.node,
        rendezvous::End{.status = end->status, .message = final_message_for(action.node)});
  connections_.send(action.node, action.message);
}

void Leader::carry_out(const Dismiss& action) {
  connections_.close(action.node);
  agents_.erase(action.node);
}

void Leader::carry_out(const ExpectHeartbeats& action) {
  connections_.expect_heartbeats(action.node, action.expected);
}

// Clears the store and closes the connections of the last round's ranks.
void Leader::carry_out(const StartRound& action) {
  members_.clear();
  for (const NodeId node : action.nodes) {
    const auto facts = connections_.facts(node);
    // This node's agent may have connected over loopback, while its ranks use the external address.
    members_.insert({facts.address, facts.local_address});
  }
  round_ = action.round;
  round_nodes_ = action.nodes;
  progress_ = {};
  to_rejoin_ = action.to_rejoin;
  traced_at_ = {};
  write_trace();
  notes_.settle();  // before any rank starts, if the file system responds
  round_restarts_ = coordinator_.counts().restarts;
  round_results_.clear();
  history_.nodes = static_cast<int>(action.nodes.size());
  close_links();
  store_.reset();
  callbacks_.state_changed(coordinator_.counts(), history_.nodes, coordinator_.lease_and_grace());
}

void Leader::carry_out(const RoundEnded& over) {
  AttemptResult attempt = merge_results(over);
  if (over.decision) {
    history_.remark = over.decision->why;
    attempt.policy = name_of(over.decision->policy);
    if (over.decision->restart && attempt.first_failure)
      callbacks_.print_line(restart_line(attempt, history_, over.decision->counted));
  }
  attempt.node_change = over.node_change;
  if (!over.node_change.empty()) callbacks_.print_line(over.node_change);
  history_.attempts.push_back(std::move(attempt));
  callbacks_.state_changed(coordinator_.counts(), history_.nodes, coordinator_.lease_and_grace());
}

// Merges the results of all ranks of all nodes, sorted by rank; the cause is that of the first
// failure.
AttemptResult Leader::merge_results(const RoundEnded& over) const {
  AttemptResult attempt;
  if (!over.failures.empty()) attempt = attempt_from_json(over.failures.front().second.details);
  attempt.number = round_restarts_;
  attempt.last_step = over.last_step;
  // Ranks that fail when a node is lost do so because of that.
  if (over.lost_node && !over.decision) attempt.cause = {Cause::Kind::lost_node, over.why, {}};
  attempt.ranks.clear();
  for (const NodeId node : round_nodes_)
    if (const auto ends = round_results_.find(node); ends != round_results_.end())
      attempt.ranks.insert(attempt.ranks.end(), ends->second.begin(), ends->second.end());
  std::sort(attempt.ranks.begin(), attempt.ranks.end(),
            [](const RankResult& a, const RankResult& b) { return a.rank < b.rank; });
  blame_suspended(attempt);
  return attempt;
}

void Leader::carry_out(const PrintLine& action) {
  callbacks_.print_line(action.line);
}

void Leader::carry_out(const JobEnded& action) {
  history_.status = action.status;
  history_.stop_signal = Signal::numbered(action.stop_signal);
  if (!action.why.empty()) history_.remark = action.why;
  history_.lasted = std::chrono::duration_cast<std::chrono::microseconds>(boot_now() - began_);
  inform_until_ = boot_now() + settings_.rules.keep_alive;
  close_links();
  notes_.run([job = settings_.job, port = port()] { erase_leader(job, port); });
  callbacks_.job_ended(action.status);
}

std::string Leader::final_message_for(NodeId node) const {
  const auto leads = agents_.find(node);
  if (history_.status == 0 || (leads != agents_.end() && leads->second)) return {};
  if (history_.attempts.empty() || !history_.attempts.back().first_failure || history_.stop_signal)
    return fmt::format("{} (exit status {}); see the output on {}", history_.remark,
                       history_.status, history_.host);
  const AttemptResult& last = history_.attempts.back();
  const RankResult& first = *last.first_failure;
  return fmt::format("{} failed: rank {} on {}: {} (exit status {}); see the table on {}",
                     history_.target, first.rank, first.host, last.cause.text, history_.status,
                     history_.host);
}

bool Leader::may_use_store(int connection, const sockaddr& peer) {
  if (local_peers_.is_local(peer)) return local_peers_.is_own_user(connection);
  return settings_.rules.direct_store && members_.contains(text_of(peer));
}

std::string Leader::reached_address() const {
  for (const NodeId node : round_nodes_) {
    const auto facts = connections_.facts(node);
    if (!facts.address.empty() && facts.address != facts.local_address) return facts.local_address;
  }
  return {};
}

bool Leader::has_others() const {
  return std::any_of(agents_.begin(), agents_.end(),
                     [](const auto& agent) { return !agent.second; });
}

void Leader::when_agents_informed(std::function<void()> done) {
  on_agents_informed_ = std::move(done);
  check_agents_informed();
}

void Leader::check_agents_informed() {
  if (!on_agents_informed_ || (connections_.peers() > 0 && boot_now() < inform_until_)) return;
  std::exchange(on_agents_informed_, nullptr)();
}

}  // namespace mgpu::launcher
