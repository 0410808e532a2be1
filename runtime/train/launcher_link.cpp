#include "runtime/train/launcher_link.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/base/background_thread.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/comm/collective_log.hpp"
#include "runtime/train/launcher_lines.hpp"

namespace mgpu::train {
namespace {

using rendezvous::UniqueFd;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kApart{500};
constexpr const char *kLoading = "loading", *kTraining = "training";

bool is_true(const nlohmann::json& json, const char* name) {
  if (!json.is_object()) return false;
  const auto found = json.find(name);
  return found != json.end() && found->is_boolean() && found->get<bool>();
}

// In which collective this rank is, for a launcher that looks for the cause of a hang.
std::string collective_line(int rank) {
  nlohmann::json line{{"rank", rank}, {"collective", nullptr}};
  if (const auto current = comm::collectives().current())
    line["collective"] = {{"name", current->name},
                          {"sequence", current->sequence},
                          {"elements", current->elements},
                          {"waiting", !current->finished}};
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

enum class Sent { whole, nothing, broken };

// Without waiting. A part of a line makes the rest unreadable: the connection is then broken.
Sent send_line(int fd, std::string_view line) {
  const auto sent = ::send(fd, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(line.size())) return Sent::whole;
  return sent < 0 && (errno == EAGAIN || errno == EINTR) ? Sent::nothing : Sent::broken;
}

// Returns when the launcher has closed the connection.
void read_orders(const UniqueFd& fd, int rank) {
  LauncherLines lines(fd.get());
  while (const auto line = lines.next()) {
    const auto order = rendezvous::parse_untrusted_json(*line);
    // Not exit(): other threads wait for the failed rank in calls that never return.
    if (is_true(order, "abort")) ::_exit(exit_status::of_signal(SIGTERM));
    if (is_true(order, "dump") && !send_all(fd.get(), collective_line(rank))) return;
  }
}

}  // namespace

UniqueFd connect_to_launcher(const std::string& address) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (!address.starts_with('@') || address.size() > sizeof to.sun_path) return {};
  std::memcpy(to.sun_path + 1, address.data() + 1, address.size() - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), length) != 0) return {};
  return fd;
}

bool send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

void obey_launcher(const rendezvous::Contract& contract) {
  auto fd = std::make_shared<UniqueFd>(connect_to_launcher(contract.worker_socket));
  const auto hello =
      fmt::format("{{\"rank\": {}, \"aborts\": true, \"dumps\": true}}\n", contract.rank);
  if (!*fd || !send_all(fd->get(), hello)) return;
  rendezvous::run_in_background([fd, rank = contract.rank] { read_orders(*fd, rank); });
}

// What the trainer's thread notes and another one sends.
struct StepReports::State {
  int rank = 0;
  UniqueFd launcher;
  std::mutex mutex;
  std::condition_variable changed;
  // The following are guarded by the mutex.
  bool unsent = true, over = false;
  std::int64_t step = -1;
  const char* phase = kLoading;
  // Steps since the last line, and the time that they took without waiting for other ranks. Steps
  // with a phase between them are left out.
  std::optional<Clock::time_point> last_step = {};
  double last_waited = 0, busy_seconds = 0;
  int steps = 0;

  void note_step(std::int64_t done, double waited);
  std::string take_line();
};

void StepReports::State::note_step(std::int64_t done, double waited) {
  const auto now = Clock::now();
  if (last_step) {
    const std::chrono::duration<double> took = now - *last_step;
    busy_seconds += std::max(0.0, took.count() - (waited - last_waited));
    ++steps;
  }
  last_step = now;
  last_waited = waited;
  step = done;
  phase = kTraining;
}

std::string StepReports::State::take_line() {
  std::string line = fmt::format("{{\"rank\": {}", rank);
  if (step >= 0) line += fmt::format(", \"step\": {}", step);
  if (step < 0 || phase != kTraining) line += fmt::format(", \"phase\": \"{}\"", phase);
  if (steps > 0) line += fmt::format(", \"busy_ms\": {:.3f}", busy_seconds * 1000 / steps);
  busy_seconds = 0;
  steps = 0;
  unsent = false;
  return line + "}\n";
}

StepReports::StepReports(const rendezvous::Contract& contract) {
  auto launcher = connect_to_launcher(contract.worker_socket);
  if (!launcher) return;
  state_ = std::make_shared<State>();
  state_->rank = contract.rank;
  state_->launcher = std::move(launcher);
  rendezvous::run_in_background([state = state_] {
    std::unique_lock lock(state->mutex);
    while (true) {
      state->changed.wait(lock, [&] { return state->unsent || state->over; });
      if (!state->unsent) return;
      const auto line = state->take_line();
      lock.unlock();
      const auto sent = send_line(state->launcher.get(), line);
      lock.lock();
      if (sent == Sent::broken) return;
      if (sent == Sent::nothing) state->unsent = !state->over;  // the launcher is busy
      state->changed.wait_for(lock, kApart, [&] { return state->over; });
    }
  });
}

StepReports::~StepReports() {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  state_->over = true;
  state_->changed.notify_one();
}

void StepReports::report(std::int64_t step, double waited_seconds) {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  state_->note_step(step, waited_seconds);
  if (!std::exchange(state_->unsent, true)) state_->changed.notify_one();
}

const char* StepReports::enter(const char* phase) {
  if (!state_) return phase;
  const std::lock_guard lock(state_->mutex);
  state_->last_step.reset();
  if (!std::exchange(state_->unsent, true)) state_->changed.notify_one();
  return std::exchange(state_->phase, phase);
}

}  // namespace mgpu::train
