#include "runtime/train/peer_replacement.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/base/background_thread.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/json_field.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/train/launcher_lines.hpp"
#include "runtime/train/launcher_link.hpp"

namespace mgpu::train {
namespace {

// The number in {"replace": 2}.
std::optional<int> replacement_in(std::string_view line) {
  const auto json = rendezvous::parse_untrusted_json(line);
  if (!json.is_object()) return {};
  const auto number = json.find("replace");
  if (number == json.end() || !rendezvous::fits<int>(*number)) return {};
  return number->get<int>();
}

}  // namespace

struct PeerReplacement::State {
  int rank;
  std::function<void()> lost;
  rendezvous::UniqueFd launcher;
  std::mutex mutex;
  std::condition_variable changed;
  bool ready = false;
  bool interrupting = false;  // a request has arrived, and `lost` is being called
  std::optional<int> number;  // of the requested replacement

  void read_requests() {
    LauncherLines lines(launcher.get());
    while (const auto line = lines.next())
      if (const auto wanted = replacement_in(*line)) request(*wanted);
  }

  void request(int wanted) {
    {
      const std::lock_guard lock(mutex);
      // Not exit(): other threads may wait for the lost rank in calls that never return.
      if (!ready) ::_exit(exit_status::kFailure);
      interrupting = true;
    }
    lost();  // before anybody can take the number and connect again, which this would interrupt
    {
      const std::lock_guard lock(mutex);
      interrupting = false;
      number = wanted;
    }
    changed.notify_all();
  }
};

PeerReplacement::PeerReplacement(const rendezvous::Contract& contract, std::function<void()> lost)
    : state_(std::make_shared<State>()) {
  state_->rank = contract.rank;
  state_->lost = std::move(lost);
  state_->launcher = connect_to_launcher(contract.worker_socket);
  if (state_->launcher) rendezvous::run_in_background([state = state_] { state->read_requests(); });
}

void PeerReplacement::set_ready(bool ready) {
  const std::lock_guard lock(state_->mutex);
  if (state_->number || state_->interrupting || !state_->launcher)
    return;  // requested() has the news
  const auto line = fmt::format("{{\"rank\": {}, \"replaces\": {}}}\n", state_->rank, ready);
  state_->ready = send_all(state_->launcher.get(), line) && ready;
}

bool PeerReplacement::requested(std::chrono::milliseconds limit) const {
  std::unique_lock lock(state_->mutex);
  if (!state_->ready && !state_->number) return false;
  return state_->changed.wait_for(lock, limit, [&] { return state_->number.has_value(); });
}

int PeerReplacement::take() {
  const std::lock_guard lock(state_->mutex);
  state_->ready = false;
  return std::exchange(state_->number, {}).value();
}

}  // namespace mgpu::train
