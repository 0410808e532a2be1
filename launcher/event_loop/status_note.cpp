#include "launcher/event_loop/status_note.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/nodes/job_registry.hpp"
#include "rendezvous/heartbeat.hpp"

namespace mgpu::launcher {

StatusNote::StatusNote(FileThread& files, const Options& options, const Placement& placement,
                       std::string host)
    : files_(files), options_(options), placement_(placement), host_(std::move(host)) {}

void StatusNote::show(std::string_view state, int attempt) {
  if (state == shown_ && attempt == attempt_) return;
  shown_ = state;
  attempt_ = attempt;
  using nlohmann::json;
  const auto now = rendezvous::boot_now().count();
  json ranks = json::array();
  for (int rank = 0; rank < placement_.nproc; ++rank) ranks.push_back(placement_.base_rank + rank);
  const json node = {{"host", host_},      {"node_rank", placement_.node_rank},
                     {"state", state},     {"since", now},
                     {"address", "local"}, {"ranks", std::move(ranks)}};
  const json status = {{"job", options_.rdzv_id},
                       {"target", options_.target},
                       {"leader", host_},
                       {"state", state},
                       {"since", now},
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
