// The answer to `mgpu-run status`.

#include <nlohmann/json.hpp>

#include "launcher/nodes/leader.hpp"
#include "launcher/nodes/progress_json.hpp"

namespace mgpu::launcher {

std::string Leader::status() const {
  using nlohmann::json;
  const auto now = rendezvous::boot_now();
  const auto seconds = [](rendezvous::Nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  const JobCounts& counts = coordinator_.counts();
  json answer = {{"job", settings_.job},
                 {"target", settings_.target},
                 {"leader", settings_.host},
                 {"state", coordinator_.phase()},
                 {"for_s", seconds(now - began_)},
                 {"round", coordinator_.round()},
                 {"restarts", counts.restarts},
                 {"max_restarts", history_.max_restarts},
                 {"renewed_by_progress", history_.renewed_by_progress},
                 {"min_nodes", settings_.rules.min_nodes},
                 {"max_nodes", settings_.rules.max_nodes},
                 {"nodes", json::array()}};
  if (coordinator_.phase() == "gathering") answer["missing"] = coordinator_.missing();
  int base_rank = 0;
  for (const auto& node : coordinator_.view()) {
    json object = {{"host", node.host},
                   {"node_rank", node.node_rank < 0 ? json() : json(node.node_rank)},
                   {"state", node.state},
                   {"for_s", seconds(now - node.since)},
                   {"address", connections_.facts(node.id).address},
                   {"ranks", json::array()}};
    for (int local = 0; node.node_rank >= 0 && local < node.nproc; ++local)
      object["ranks"].push_back(base_rank++);
    if (const auto ranks = progress_.of(node.id); !ranks.empty())
      object["progress"] = progress_to_json(ranks);
    answer["nodes"].push_back(std::move(object));
  }
  return answer.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace mgpu::launcher
