#include "runtime/model/presets.hpp"

#include "runtime/model/families.hpp"
#include "runtime/model/model_shape.hpp"
#include "runtime/model/read_config.hpp"
#include "runtime/model/write_config.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::model;
using Catch::Matchers::Contains;

TEST_CASE("the presets have the documented sizes", "[model]") {
  struct Case {
    const char* size;
    std::int64_t parameters;
  };
  const auto [size, parameters] = GENERATE(values<Case>(
      {{"tiny", 854'656}, {"small", 6'433'024}, {"medium", 25'711'104}, {"large", 99'144'960}}));
  CAPTURE(size);
  CHECK(non_embedding_count(preset(size, 1000)) == parameters);
  CHECK(parameter_count(preset(size, 1000)) == parameters + 1000 * preset(size, 1000).hidden_size);
}

TEST_CASE("the tiny preset is the quickstart's model", "[model]") {
  const ModelConfig tiny = preset("tiny", 274);
  CHECK(parameter_count(tiny) == 889'728);
  CHECK((tiny.tied && tiny.qkv_bias && !tiny.o_bias && !tiny.qk_norm));
  CHECK(tiny.head_dim == 32);
  CHECK_THROWS_WITH(preset("huge", 1), Contains("tiny, small, medium or large, not 'huge'"));
}

TEST_CASE("the sizes of Qwen3 have the published parameter counts", "[model]") {
  struct Case {
    const char* size;
    std::int64_t parameters;
  };
  const auto [size, parameters] = GENERATE(values<Case>({{"0.6B", 596'049'920},
                                                         {"1.7B", 1'720'574'976},
                                                         {"4B", 4'022'468'096},
                                                         {"8B", 8'190'735'360},
                                                         {"14B", 14'768'307'200},
                                                         {"32B", 32'762'123'264}}));
  CAPTURE(size);
  const auto config = preset(size, 151936, Family::qwen3);
  CHECK(parameter_count(config) == parameters);
  CHECK((config.qk_norm && !config.qkv_bias && config.head_dim == 128));
  CHECK(config.rope == Rope{.theta = 1e6});
  CHECK(config.max_position == 40960);
}

TEST_CASE("the small sizes exist in every family, as config.json can describe them", "[model]") {
  const auto& family = families()[GENERATE(range(std::size_t{0}, families().size()))];
  const auto size = GENERATE("tiny", "small", "medium", "large");
  CAPTURE(family.model_type, size);
  const auto config = preset(size, 274, family.family);
  CHECK(config.family == family.family);
  CHECK(config.qkv_bias == family.qkv_bias);
  CHECK(config.qk_norm == family.qk_norm);
  CHECK(config.sliding_window == 0);
  CHECK(parse_model_config(model_config_text(config), "c") == config);
}

TEST_CASE("a size of another family is rejected with that family's name", "[model]") {
  CHECK(size_mistake("0.6B", Family::qwen3) == std::nullopt);
  CHECK(size_mistake("0.6B", Family::qwen2) ==
        "must be tiny, small, medium or large, not '0.6B', which is a size of model_family: qwen3");
  CHECK_THROWS_WITH(preset("0.6B", 1, Family::llama), Contains("model_size must be tiny, small,"));
  CHECK(size_mistake("7B", Family::qwen3) ==
        "must be tiny, small, medium, large, 0.6B, 1.7B, 4B, 8B, 14B or 32B, not '7B'");
}
