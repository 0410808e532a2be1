#include "runtime/train/training_stats.hpp"

#include <nlohmann/json.hpp>

namespace mgpu::train {

std::string status_text(const TrainingStats& stats, const std::string& state, double time,
                        const std::string& run_id, int restarts, const std::string& backend,
                        const std::vector<RankPlace>& places) {
  using Json = nlohmann::ordered_json;
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const auto& place = places[rank];
    ranks.push_back({{"rank", rank},
                     {"host", place.host},
                     {"pid", place.pid},
                     {"gpu", place.gpu < 0 ? Json() : Json(place.gpu)},
                     {"device", place.device}});
  }
  const Json status{{"state", state},
                    {"rank", stats.rank},
                    {"world_size", stats.world_size},
                    {"is_distributed", stats.is_distributed},
                    {"step", stats.step},
                    {"total_steps", stats.total_steps},
                    {"epoch", stats.epoch},
                    {"time", time},
                    {"run_id", run_id},
                    {"restarts", restarts},
                    {"backend", backend},
                    {"ranks", std::move(ranks)}};
  return status.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mgpu::train
