#include "runtime/rl/recipe.hpp"

#include "runtime/config/resolve.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;

namespace {

bool corrects_sampler(const std::string& lines) {
  const auto config =
      train::parse_recipe("model_name_or_path: m\ndataset_name: d\ntask: grpo\n" + lines, "f");
  return rl::loss_control(config).settings().correct_sampler;
}

}  // namespace

TEST_CASE("a server's completions are corrected by default, our engine's on request", "[recipe]") {
  const std::string server = "use_vllm: true\nvllm_mode: server\n";
  const std::string key = "vllm_importance_sampling_correction: ";
  CHECK(corrects_sampler(server));
  CHECK_FALSE(corrects_sampler(server + key + "false\n"));
  CHECK_FALSE(corrects_sampler(""));
  CHECK_FALSE(corrects_sampler("vllm_importance_sampling_mode: token_truncate\n"));
  CHECK_FALSE(corrects_sampler(key + "false\n"));
  CHECK(corrects_sampler(key + "true\n"));
  CHECK(corrects_sampler("use_vllm: true\n" + key + "true\n"));  // vllm_mode: colocate
}
