#include "runtime/config/planning/rollout_memory.hpp"
#include "runtime/rollout/paged_model.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;

TEST_CASE("the planner and the engine use the same page size", "[engine]") {
  model::ModelConfig config;
  config.layers = 3;
  config.kv_heads = 2;
  config.head_dim = 24;
  CHECK(train::cache_page(config, 2).tokens == ops::kPageTokens);
  CHECK(train::cache_page(config, 2).bytes ==
        rollout::PagedModel::page_bytes(config, at::kBFloat16));
  CHECK(train::cache_page(config, 4).bytes == rollout::PagedModel::page_bytes(config, at::kFloat));
}
