#include "launcher/event_loop/status_note.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/nodes/job_registry.hpp"
#include "rendezvous/heartbeat.hpp"

namespace mgpu::launcher {

namespace {

using nlohmann::json;

json as_json(const SampleRequest& request, const MemorySample& sample) {
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

void StatusNote::show(std::string_view state, int attempt) {
  if (state == shown_ && attempt == attempt_) return;
  shown_ = state;
  attempt_ = attempt;
  since_ = rendezvous::boot_now().count();
  write();
}

void StatusNote::show_memory(const SampleRequest& request, const MemorySample& sample) {
  if (shown_.empty()) return;
  write(request, &sample);
}

void StatusNote::write(const SampleRequest& request, const MemorySample* sample) {
  json ranks = json::array();
  for (int rank = 0; rank < placement_.nproc; ++rank) ranks.push_back(placement_.base_rank + rank);
  json node = {{"host", host_},      {"node_rank", placement_.node_rank},
               {"state", shown_},    {"since", since_},
               {"address", "local"}, {"ranks", std::move(ranks)}};
  if (sample) node["memory"] = as_json(request, *sample);
  const json status = {{"job", options_.rdzv_id},
                       {"target", options_.target},
                       {"leader", host_},
                       {"state", shown_},
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
