#include "runtime/train/training_stats.hpp"

#include <nlohmann/json.hpp>

#include "tests/support/catch.hpp"

using namespace mgpu::train;

TEST_CASE("the status has rank, world size, step and the place of every rank", "[stats]") {
  const TrainingStats stats{.rank = 0,
                            .world_size = 2,
                            .is_distributed = true,
                            .step = 5,
                            .total_steps = 20,
                            .epoch = .25};
  const auto text = status_text(stats, "running", 1.5, "job", 3, "nccl",
                                {{0, 7, "a", "NVIDIA H200"}, {-1, 8, "b", "cpu"}});
  CHECK(nlohmann::json::parse(text) == nlohmann::json::parse(R"({
    "state": "running", "rank": 0, "world_size": 2, "is_distributed": true,
    "step": 5, "total_steps": 20, "epoch": 0.25, "time": 1.5,
    "run_id": "job", "restarts": 3, "backend": "nccl",
    "ranks": [
      {"rank": 0, "host": "a", "pid": 7, "gpu": 0, "device": "NVIDIA H200"},
      {"rank": 1, "host": "b", "pid": 8, "gpu": null, "device": "cpu"}]})"));
}

TEST_CASE("a status is written whatever bytes the names have", "[stats]") {
  const auto text = status_text({}, "running", 0, "\xff", 0, "none", {{-1, 1, "\xfe", "cpu"}});
  CHECK(nlohmann::json::parse(text).at("ranks").size() == 1);
}
