#include "launcher/nodes/progress_json.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "rendezvous/base/json_field.hpp"
#include "rendezvous/base/limits.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::launcher {
namespace {

using nlohmann::json;

void read_time(const json& object, const char* name, std::optional<double>& value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return;
  const double time = *found;
  if (std::isfinite(time) && time >= 0) value = time;
}

RankProgress read_progress(const json& object) {
  RankProgress rank{.rank = -1, .phase = kTrainingPhase};
  rendezvous::read_field(object, "rank", rank.rank);
  rendezvous::read_field(object, "step", rank.step);
  rendezvous::read_field(object, "phase", rank.phase);
  if (!is_phase(rank.phase)) rank.phase = kTrainingPhase;
  read_time(object, "step_ms", rank.step_ms);
  read_time(object, "busy_ms", rank.busy_ms);
  return rank;
}

}  // namespace

json progress_to_json(const std::vector<RankProgress>& ranks) {
  auto list = json::array();
  for (const auto& rank : ranks) {
    json one = {{"rank", rank.rank}, {"phase", rank.phase}};
    if (rank.step >= 0) one["step"] = rank.step;
    if (rank.step_ms) one["step_ms"] = *rank.step_ms;
    if (rank.busy_ms) one["busy_ms"] = *rank.busy_ms;
    if (rank.skew) one["skew"] = *rank.skew;
    if (rank.straggler) one["straggler"] = true;
    list.push_back(std::move(one));
  }
  return list;
}

std::string progress_to_text(const std::vector<RankProgress>& ranks) {
  return progress_to_json(ranks).dump();
}

std::vector<RankProgress> progress_from_json(const std::string& text) {
  std::vector<RankProgress> ranks;
  const json list = rendezvous::parse_untrusted_json(text);
  if (!list.is_array()) return ranks;
  for (const auto& object : list) {
    if (ranks.size() >= rendezvous::kMostRanks) break;
    if (!object.is_object()) continue;
    if (auto rank = read_progress(object); rank.rank >= 0) ranks.push_back(std::move(rank));
  }
  return ranks;
}

}  // namespace mgpu::launcher
