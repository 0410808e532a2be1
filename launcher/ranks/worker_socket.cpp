#include "launcher/ranks/worker_socket.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "rendezvous/auth.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/json_field.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::launcher {
namespace {

constexpr std::size_t kLongestLine = 4096;
constexpr double kMostBusy = 1e9;
constexpr std::size_t kConnectionsPerRank = 16;  // of the rank and of its own processes
constexpr int kBacklog = 128;
constexpr int kMostAccepts = 64;  // at once
constexpr int kMostReads = 256;   // of one connection, when a rank has ended
constexpr std::string_view kAbort = "{\"abort\": true}\n";
constexpr std::string_view kDump = "{\"dump\": true}\n";

// A socket that listens at an abstract address that nobody else can have.
rendezvous::UniqueFd listen_at(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  rendezvous::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(fd.get(), kBacklog) != 0)
    rendezvous::throw_errno(
        "cannot create the worker socket, so hangs are not detected, and ranks get SIGTERM when "
        "another rank fails");
  return fd;
}

// Nullopt: it is not one.
std::optional<CollectiveState> as_collective(const nlohmann::json& json) {
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) return std::nullopt;
  CollectiveState state{.name = rendezvous::printable(json["name"].get<std::string>())};
  rendezvous::read_field(json, "sequence", state.sequence);
  rendezvous::read_field(json, "elements", state.elements);
  rendezvous::read_field(json, "waiting", state.waiting);
  return state;
}

// The whole line, or nothing.
bool send_line(int fd, std::string_view line) {
  return ::send(fd, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(line.size());
}

bool is_ours(int fd, ucred& who) {
  socklen_t length = sizeof who;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 &&
         (who.uid == ::geteuid() || who.uid == 0);
}

}  // namespace

WorkerSocket::WorkerSocket(boost::asio::io_context& io, std::function<void(std::string_view)> note)
    : io_(io), note_(std::move(note)), listener_(io) {
  const auto name = "mgpu-run." + rendezvous::auth::to_hex(rendezvous::auth::random_bytes(16));
  try {
    listener_.assign(listen_at(name).release());
    address_ = "@" + name;
    accept();
  } catch (const std::exception& failed) {
    problem_ = failed.what();
  }
}

void WorkerSocket::on_heartbeat(std::function<void(const Heartbeat&)> heard,
                                std::function<void(int)> silent) {
  heard_ = std::move(heard);
  silent_ = std::move(silent);
}

void WorkerSocket::begin_attempt(int base_rank, int ranks) {
  base_rank_ = base_rank;
  ranks_ = ranks;
  last_step_ = -1;
  complained_ = false;
  peers_.clear();
  collectives_.clear();
  if (listener_.is_open() && !accepting_) accept();
}

bool WorkerSocket::abort(int rank) {
  take_waiting();
  bool told = false;
  for (auto& [number, peer] : peers_)
    if (peer.aborts && peer.rank == rank) told |= send_line(peer.socket.native_handle(), kAbort);
  return told;
}

bool WorkerSocket::request_dumps() {
  collectives_.clear();
  bool asked = false;
  for (auto& [number, peer] : peers_)
    if (peer.dumps) asked |= send_line(peer.socket.native_handle(), kDump);
  return asked;
}

std::optional<CollectiveState> WorkerSocket::collective_of(int rank) const {
  const auto found = collectives_.find(rank);
  return found == collectives_.end() ? std::nullopt : std::optional(found->second);
}

int WorkerSocket::ready_ranks(std::optional<int> except) const {
  std::set<int> ready;
  for (const auto& [number, peer] : peers_)
    if (peer.replaces && peer.rank && peer.rank != except) ready.insert(*peer.rank);
  return static_cast<int>(ready.size());
}

bool WorkerSocket::can_replace(int lost) {
  take_waiting();
  return ranks_ > 1 && ready_ranks(lost) + 1 == ranks_;
}

void WorkerSocket::replace(int lost, int number) {
  const auto line = fmt::format("{{\"replace\": {}}}\n", number);
  for (auto& [id, peer] : peers_) {
    if (peer.rank == lost) {
      peer.lost = true;
      peer.rank.reset();
      peer.reported.erase(lost);
      peer.aborts = peer.dumps = peer.replaces = false;
    }
    if (std::exchange(peer.replaces, false)) send_line(peer.socket.native_handle(), line);
  }
}

std::int64_t WorkerSocket::last_step() {
  take_waiting();
  return last_step_;
}

void WorkerSocket::take_waiting() {
  if (listener_.is_open()) accept_waiting();
  for (auto peer = peers_.begin(); peer != peers_.end();) {
    int available = 0;
    bool open = true;
    for (int i = 0;
         open && i < kMostReads &&
         ::ioctl(peer->second.socket.native_handle(), FIONREAD, &available) == 0 && available > 0;
         ++i)
      open = read(peer->second);
    peer = open ? std::next(peer) : close(peer);
  }
}

void WorkerSocket::accept() {
  accepting_ = true;
  listener_.async_wait(listener_.wait_read, [this](const boost::system::error_code& failed) {
    accepting_ = false;
    if (failed) return;
    if (accept_waiting()) return accept();
    // Without descriptors the connection stays in the queue, and waiting would not wait.
    complain(
        "connections to the worker socket wait until the next attempt: too many open files; "
        "raise ulimit -n");
  });
}

// Returns false if no descriptor is left. Other users can connect too, as often as they like: the
// rest of the queue waits for its turn in the loop.
bool WorkerSocket::accept_waiting() {
  for (int i = 0; i < kMostAccepts; ++i) {
    rendezvous::UniqueFd fd(
        ::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return errno != EMFILE && errno != ENFILE;
    admit(std::move(fd));
  }
  return true;
}

void WorkerSocket::admit(rendezvous::UniqueFd fd) {
  ucred who{};
  if (!is_ours(fd.get(), who)) return;
  if (peers_.size() >= kConnectionsPerRank * static_cast<std::size_t>(ranks_))
    return complain(
        fmt::format("closed a connection of process {} to the worker socket: {} are "
                    "open already",
                    who.pid, peers_.size()));
  const Number number = next_++;
  auto& peer = peers_.try_emplace(number, boost::asio::posix::stream_descriptor(io_)).first->second;
  boost::system::error_code failed;
  peer.socket.assign(fd.get(), failed);
  if (failed) {
    peers_.erase(number);
    return;
  }
  fd.release();
  peer.pid = who.pid;
  await(number);
}

void WorkerSocket::complain(std::string_view line) {
  if (!std::exchange(complained_, true)) note_(line);
}

void WorkerSocket::await(Number number) {
  auto& peer = peers_.at(number);
  peer.socket.async_wait(peer.socket.wait_read,
                         [this, number](const boost::system::error_code& failed) {
                           const auto found = peers_.find(number);
                           if (failed || found == peers_.end()) return;
                           if (!read(found->second)) {
                             close(found);
                             return;
                           }
                           await(number);
                         });
}

std::map<WorkerSocket::Number, WorkerSocket::Peer>::iterator WorkerSocket::close(
    std::map<Number, Peer>::iterator peer) {
  const auto reported = std::move(peer->second.reported);
  const auto next = peers_.erase(peer);
  for (const int rank : reported)
    if (std::ranges::none_of(
            peers_, [&](const auto& other) { return other.second.reported.contains(rank); }))
      silent_(rank);
  return next;
}

// Reads once: a sender that never stops does not keep the loop from its other work.
bool WorkerSocket::read(Peer& peer) {
  char bytes[kLongestLine];
  const auto got = ::recv(peer.socket.native_handle(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  peer.pending.append(bytes, static_cast<std::size_t>(got));
  return take_lines(peer);
}

bool WorkerSocket::take_lines(Peer& peer) {
  std::string wrong;
  std::size_t begin = 0;
  for (std::size_t end;
       wrong.empty() && (end = peer.pending.find('\n', begin)) != peer.pending.npos;
       begin = end + 1)
    wrong = end - begin > kLongestLine
                ? "is too long"
                : take(peer, std::string_view(peer.pending).substr(begin, end - begin));
  peer.pending.erase(0, begin);
  if (wrong.empty() && peer.pending.size() > kLongestLine) wrong = "is too long";
  if (wrong.empty()) return true;
  complain(fmt::format("closed the connection of process {} to the worker socket: its line {}",
                       peer.pid, wrong));
  return false;
}

std::string WorkerSocket::take(Peer& peer, std::string_view line) {
  if (peer.lost) return {};
  const auto json = rendezvous::parse_untrusted_json(line);
  if (!json.is_object()) return "is not a JSON object";
  if (const auto rank = json.find("rank"); rank != json.end()) {
    if (!rendezvous::fits<int>(*rank) || rank->get<int>() < base_rank_ ||
        rank->get<int>() - base_rank_ >= ranks_)
      return "names a rank that is not on this node";
    peer.rank = rank->get<int>();
  }
  if (!peer.rank) return "does not name its rank";
  if (const auto aborts = json.find("aborts"); aborts != json.end()) {
    if (!aborts->is_boolean()) return "has a value for \"aborts\" that is not true or false";
    peer.aborts = aborts->get<bool>();
  }
  if (const auto dumps = json.find("dumps"); dumps != json.end()) {
    if (!dumps->is_boolean()) return "has a value for \"dumps\" that is not true or false";
    peer.dumps = dumps->get<bool>();
  }
  if (const auto collective = json.find("collective"); collective != json.end())
    if (auto state = as_collective(*collective)) collectives_[*peer.rank] = std::move(*state);
  if (const auto replaces = json.find("replaces"); replaces != json.end()) {
    if (!replaces->is_boolean()) return "has a value for \"replaces\" that is not true or false";
    peer.replaces = replaces->get<bool>();
    if (peer.replaces && ready_ && ready_ranks() == ranks_) ready_();
  }
  Heartbeat heartbeat{.rank = *peer.rank};
  if (const auto step = json.find("step"); step != json.end()) {
    if (!rendezvous::fits<std::int64_t>(*step) || step->get<std::int64_t>() < 0)
      return "has a value for \"step\" that is not a whole number from 0 on";
    heartbeat.step = step->get<std::int64_t>();
    last_step_ = std::max(last_step_, *heartbeat.step);
  }
  if (const auto phase = json.find("phase"); phase != json.end()) {
    if (!phase->is_string() || !is_phase(phase->get_ref<const std::string&>()))
      return "has a value for \"phase\" that is not a word of at most 64 letters";
    heartbeat.phase = phase->get<std::string>();
  }
  if (const auto busy = json.find("busy_ms"); busy != json.end()) {
    const double time = busy->is_number() ? busy->get<double>() : -1;
    const bool fits = time >= 0 && time <= kMostBusy;
    if (!fits) return "has a value for \"busy_ms\" that is not a number from 0 to 1e9";
    heartbeat.busy_ms = time;
  }
  if (!heartbeat.step && !heartbeat.phase) return {};
  peer.reported.insert(*peer.rank);
  heard_(heartbeat);
  return {};
}

}  // namespace mgpu::launcher
