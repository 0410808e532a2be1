#include "launcher/event_loop/status_note.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/nodes/job_registry.hpp"
#include "launcher/nodes/progress_json.hpp"
#include "rendezvous/heartbeat.hpp"

namespace mgpu::launcher {
namespace {

using nlohmann::json;

json memory_json(const SampleRequest& request, const MemorySample& sample) {
  json memory = {{"host", {{"used", sample.host.used}, {"total", sample.host.total}}},
                 {"ranks", json::array()},
                 {"gpus", json::array()}};
  for (std::size_t i = 0; i < sample.ranks.size(); ++i)
    memory["ranks"].push_back({{"rank", request.ranks.at(i).rank},
                               {"bytes", sample.ranks[i].own},
                               {"children_bytes", sample.ranks[i].children_bytes}});
  for (const auto& reading : sample.gpus)
    memory["gpus"].push_back({{"gpu", reading.gpu},
                              {"used", reading.memory.used},
                              {"total", reading.memory.total},
                              {"utilization", reading.activity.utilization},
                              {"temperature", reading.activity.temperature},
                              {"reduced_clock", slowdown_text(reading.activity.slowdown)}});
  return memory;
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
  if (attempt != attempt_) memory_.reset();
  state_ = state;
  attempt_ = attempt;
  progress_ = progress;
  write();
}

void StatusNote::show_memory(const SampleRequest& request, const MemorySample& sample) {
  if (state_.empty()) return;
  memory_.emplace(request, sample);
  write();
}

void StatusNote::write() {
  json ranks = json::array();
  for (int rank = 0; rank < placement_.nproc; ++rank) ranks.push_back(placement_.base_rank + rank);
  json node = {{"host", host_},      {"node_rank", placement_.node_rank},
               {"state", state_},    {"since", since_},
               {"address", "local"}, {"ranks", std::move(ranks)}};
  if (!progress_.empty()) node["progress"] = progress_to_json(progress_);
  if (memory_) node["memory"] = memory_json(memory_->first, memory_->second);
  const json status = {{"job", options_.rdzv_id},
                       {"target", options_.target},
                       {"leader", host_},
                       {"state", state_},
                       {"since", since_},
                       {"round", attempt_},
                       {"restarts", attempt_},
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
