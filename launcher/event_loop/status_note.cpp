#include "launcher/event_loop/status_note.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/nodes/job_registry.hpp"
#include "rendezvous/heartbeat.hpp"

namespace mgpu::launcher {
namespace {

nlohmann::json progress_json(const std::vector<RankProgress>& progress) {
  auto ranks = nlohmann::json::array();
  for (const auto& rank : progress) {
    nlohmann::json one = {{"rank", rank.rank}, {"phase", rank.phase}};
    if (rank.step >= 0) one["step"] = rank.step;
    if (rank.busy_ms) one["busy_ms"] = *rank.busy_ms;
    if (rank.skew) one["skew"] = *rank.skew;
    ranks.push_back(std::move(one));
  }
  return ranks;
}

}  // namespace

StatusNote::StatusNote(FileThread& files, const Options& options, const Placement& placement,
                       std::string host)
    : files_(files), options_(options), placement_(placement), host_(std::move(host)) {}

void StatusNote::show(std::string_view state, int attempt,
                      const std::vector<RankProgress>& progress) {
  const bool same_state = state == state_ && attempt == attempt_;
  if (same_state && progress == progress_) return;
  if (!same_state) since_ = rendezvous::boot_now().count();
  state_ = state;
  attempt_ = attempt;
  progress_ = progress;
  using nlohmann::json;
  json ranks = json::array();
  for (int rank = 0; rank < placement_.nproc; ++rank) ranks.push_back(placement_.base_rank + rank);
  json node = {{"host", host_},      {"node_rank", placement_.node_rank},
               {"state", state},     {"since", since_},
               {"address", "local"}, {"ranks", std::move(ranks)}};
  if (!progress.empty()) node["progress"] = progress_json(progress);
  const json status = {{"job", options_.rdzv_id},
                       {"target", options_.target},
                       {"leader", host_},
                       {"state", state},
                       {"since", since_},
                       {"round", attempt},
                       {"restarts", attempt},
                       {"max_restarts", options_.max_restarts},
                       {"renewed_by_progress", options_.restarts_renewed},
                       {"min_nodes", 1},
                       {"max_nodes", 1},
                       {"nodes", json::array({node})}};
  files_.run(
      [job = options_.rdzv_id, text = status.dump(-1, ' ', false, json::error_handler_t::replace)] {
        note_status(job, text);
      });
}

void StatusNote::remove() {
  files_.run([job = options_.rdzv_id] { forget_status(job); });
}

}  // namespace mgpu::launcher
