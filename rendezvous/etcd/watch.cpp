#include "rendezvous/etcd/watch.hpp"

#include <algorithm>
#include <utility>

#include "rendezvous/etcd/requests.hpp"

namespace mgpu::rendezvous::etcd {

using boost::system::error_code;
using namespace std::chrono_literals;

namespace {

constexpr auto kFirstPause = 20ms;
constexpr std::size_t kMaxLineBytes = 4 << 20;

}  // namespace

Watch::Watch(Members& members, std::string prefix, std::int64_t from_revision, Listener listener)
    : members_(members),
      prefix_(std::move(prefix)),
      next_(from_revision),
      listener_(std::move(listener)),
      pause_(members.io),
      next_pause_(kFirstPause) {
  connect();
}

Watch::~Watch() {
  if (exchange_) exchange_->cancel();
}

void Watch::connect() {
  if (exchange_) exchange_->cancel();
  line_.clear();
  member_ = members_.current();
  const auto& endpoint = members_.at(member_);
  exchange_ = std::make_shared<http::Exchange>(
      members_.io, members_.resolver, members_.tls_context(), endpoint,
      http::Exchange::Listener{.on_end = [this](const auto& result) { on_end(result); },
                               .on_piece = [this](auto piece) { on_piece(piece); }});
  exchange_->start(http_post(endpoint.authority(), "/v3/watch", members_.token,
                             watch_request(prefix_, prefix_end(prefix_), next_)),
                   members_.access().attempt_limit);
}

void Watch::reconnect_later() {
  if (exchange_) exchange_->cancel();
  pause_.expires_after(next_pause_);
  next_pause_ = std::min<std::chrono::milliseconds>(2 * next_pause_, kLongestPause);
  // The handler may already be queued when this object is destroyed.
  pause_.async_wait([this, alive = std::weak_ptr(alive_)](const error_code& error) {
    if (!error && !alive.expired()) connect();
  });
}

void Watch::reconnect() {
  pause_.cancel();
  connect();
}

void Watch::on_end(const http::Exchange::Result& result) {
  ErrorAnswer error;
  // Calls renew the token; until then every member would reject this watch.
  const bool sign_in = result.problem.empty() &&
                       classify(result.status, result.body, error) == ResponseKind::sign_in;
  if (!sign_in) members_.mark_failed(member_);
  reconnect_later();
}

void Watch::on_piece(std::string_view piece) {
  const std::weak_ptr<bool> alive = alive_;
  while (!piece.empty()) {
    const auto newline = piece.find('\n');
    line_.append(piece.substr(0, newline));
    if (line_.size() > kMaxLineBytes) return report_lost("a line of etcd's watch is too long");
    if (newline == std::string_view::npos) return;
    piece.remove_prefix(newline + 1);
    const auto line = std::exchange(line_, {});
    if (line.empty()) continue;
    if (!read_line(line) || alive.expired()) return;
  }
}

// False if nothing more must be read from this connection.
bool Watch::read_line(std::string_view line) {
  const auto answer = WatchAnswer::parse(line);
  if (!answer) {
    report_lost("cannot parse a line of etcd's watch");
    return false;
  }
  if (answer->compact_revision != 0) {
    report_lost("etcd no longer keeps the changes that were missed");
    return false;
  }
  if (answer->canceled || !members_.is_same_cluster(answer->header.cluster)) {
    members_.mark_failed(member_);
    reconnect_later();
    return false;
  }
  next_pause_ = kFirstPause;
  if (answer->events.empty()) return true;
  auto news = answer->events;
  // After a reconnect in the middle of a revision, its first events are repeated.
  std::erase_if(news, [&](const auto& event) { return event.key.mod_revision < next_; });
  for (const auto& event : answer->events) {
    if (event.key.mod_revision == INT64_MAX) continue;  // cannot be real, and + 1 would overflow
    next_ = std::max(next_, event.key.mod_revision + 1);
  }
  const auto on_events = listener_.on_events;  // a copy: it may destroy this object
  if (!news.empty()) on_events(news);
  return true;
}

void Watch::report_lost(std::string why) {
  if (exchange_) exchange_->cancel();
  const auto on_lost = listener_.on_lost;
  on_lost(std::move(why));
}

}  // namespace mgpu::rendezvous::etcd
