// The keys that decide which layers are recomputed.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/runtime/config/short_recipe.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

TEST_CASE("gradient_checkpointing is a flag or a name", "[recipe]") {
  struct Case {
    const char* line;
    Recompute meant;
  };
  auto [line, meant] =
      GENERATE(values<Case>({{"gradient_checkpointing: true", Recompute::full},
                             {"gradient_checkpointing: False", Recompute::no},
                             {"gradient_checkpointing: auto", Recompute::automatic},
                             {"use_gradient_checkpointing: \"unsloth\"", Recompute::offload},
                             {"recompute: offload", Recompute::offload},
                             {"disable_gradient_checkpointing: true", Recompute::no},
                             {"activation_offloading: true", Recompute::offload}}));
  CAPTURE(line);
  CHECK(with(std::string(line) + "\n").gradient_checkpointing == meant);
}

TEST_CASE("a kind of recomputation refines a flag that turns it on", "[recipe]") {
  for (const char* lines :
       {"use_gradient_checkpointing: \"unsloth\"\ngradient_checkpointing: true\n",
        "gradient_checkpointing: True\nuse_gradient_checkpointing: \"unsloth\"\n"})
    CHECK(with(lines).gradient_checkpointing == Recompute::offload);
  CHECK_THAT(mistake("use_gradient_checkpointing: \"unsloth\"\ngradient_checkpointing: false\n"),
             Contains("keep one"));
}

TEST_CASE("recomputed_layers is a number, all or auto, and implies recomputation", "[recipe]") {
  struct Case {
    const char* lines;
    Recompute way;
    std::int64_t layers;
  };
  const auto [lines, way, layers] = GENERATE(values<Case>(
      {{"seed: 1\n", Recompute::automatic, kFewestLayers},
       {"gradient_checkpointing: true\n", Recompute::full, kAllLayers},
       {"gradient_checkpointing: offload\n", Recompute::offload, kAllLayers},
       {"activation_offloading: true\nrecomputed_layers: 3\n", Recompute::offload, 3},
       {"recomputed_layers: 12\n", Recompute::full, 12},
       {"recomputed_layers: all\n", Recompute::full, kAllLayers},
       {"recomputed_layers: auto\n", Recompute::automatic, kFewestLayers},
       {"gradient_checkpointing: true\nrecomputed_layers: auto\n", Recompute::full, kFewestLayers},
       {"recompute_granularity: full\nrecompute_method: block\nrecompute_num_layers: 4\n",
        Recompute::full, 4},
       {"recompute_granularity: full\nrecompute_method: uniform\nrecompute_num_layers: 4\n",
        Recompute::full, kAllLayers},
       {"recompute_granularity: full\n", Recompute::full, kAllLayers},
       {"recompute_granularity: selective\n", Recompute::automatic, kFewestLayers}}));
  CAPTURE(lines);
  const auto config = with(lines);
  CHECK(config.gradient_checkpointing == way);
  CHECK(config.recomputed_layers == layers);
}

TEST_CASE("a wrong number of recomputed layers gets one clear line", "[recipe]") {
  for (const char* wrong : {"0", "-1", "1.5", "most", "99999999999999999999"})
    CHECK_THAT(
        mistake(fmt::format("recomputed_layers: {}\n", wrong)),
        Contains("recomputed_layers: need all, auto or a number of layers of at least 1, not "));
  CHECK_THAT(mistake("recomputed_layers: 4\ngradient_checkpointing: false\n"),
             Contains("recomputed_layers: contradicts gradient_checkpointing"));
  CHECK_THAT(mistake("recomputed_layers: 4\ngradient_checkpointing: auto\n"),
             Contains("recomputed_layers: contradicts gradient_checkpointing"));
  CHECK_THAT(mistake("recompute_granularity: full\ngradient_checkpointing: false\n"),
             Contains("recompute_granularity: contradicts gradient_checkpointing"));
  CHECK_THAT(mistake("recompute_granularity: full\ngradient_checkpointing: auto\n"),
             Contains("recompute_granularity: contradicts gradient_checkpointing"));
  CHECK_THAT(mistake("recompute_method: uniform\ngradient_checkpointing: false\n"),
             Contains("recompute_method: contradicts gradient_checkpointing"));
  CHECK_THAT(mistake("recompute_method: uniform\ngradient_checkpointing: auto\n"),
             Contains("recompute_method: contradicts gradient_checkpointing"));
  CHECK_THAT(mistake("recompute_method: some\n"), Contains("recompute_method: "));
}

TEST_CASE("Megatron's keys of recomputation leave a note of what they mean", "[recipe]") {
  const auto notes = [](const std::string& lines) {
    std::string all;
    for (const auto& note : with(lines).notes) all += note + "\n";
    return all;
  };
  CHECK_THAT(notes("recompute_granularity: selective\n"), Contains("has no effect: attention"));
  CHECK_THAT(notes("recompute_method: uniform\n"), Contains("means recomputed_layers: all"));
  CHECK_THAT(notes("recompute_method: block\n"),
             Contains("has no effect without recomputed_layers"));
}

TEST_CASE("the command line can turn recomputation off for one run", "[recipe]") {
  const auto config = with("recomputed_layers: 4\n", {.set = {"gradient_checkpointing=false"}});
  CHECK(config.gradient_checkpointing == Recompute::no);
  CHECK_THAT(config.notes.front(), Contains("recomputed_layers: has no effect"));
  const auto full =
      with("recompute_granularity: full\n", {.set = {"gradient_checkpointing=false"}});
  CHECK(full.gradient_checkpointing == Recompute::no);
}
