#include "runtime/model/write_config.hpp"

#include <nlohmann/json.hpp>

#include "runtime/model/families.hpp"
#include "runtime/model/presets.hpp"
#include "runtime/model/read_config.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::model;
using Catch::Matchers::Contains;
using Json = nlohmann::json;

TEST_CASE("a written config is read back as the same model", "[config]") {
  ModelConfig config = preset("tiny", 274);
  const auto& family = families()[GENERATE(range(std::size_t{0}, families().size()))];
  CAPTURE(family.model_type);
  config.family = family.family;
  config.qkv_bias = family.qkv_bias;
  config.qk_norm = family.qk_norm;
  config.rope = GENERATE(
      Rope{}, Rope{.kind = Rope::Kind::linear, .theta = 1e6, .factor = 2},
      Rope{.kind = Rope::Kind::llama3, .theta = 5e5, .factor = 32, .original_max_position = 8192});
  config.nf4 = GENERATE(false, true);
  config.bos_token_id = 1;
  config.eos_token_ids = {2, 3};
  CHECK(parse_model_config(model_config_text(config), "c") == config);
  CHECK(parse_generation_eos(generation_config_text(config), "g") == config.eos_token_ids);
}

TEST_CASE("unknown keys that would be written as gigabytes are refused when they are read",
          "[config]") {
  Json base = Json::parse(model_config_text(preset("tiny", 274)));
  Json nested = 1;
  for (int i = 0; i < 15; ++i) nested = Json::array({nested, 2});
  base["unknown"] = nested;
  const auto text = base.dump();
  CHECK(model_config_text(parse_model_config(text, "c"), text).size() < 32 * text.size());

  base["unknown"] = Json::array({nested});
  CHECK_THROWS_WITH(parse_model_config(base.dump(), "c"), "c: nested more than 16 levels deep");
}

TEST_CASE("other keys of the model's own config.json are kept", "[config]") {
  Json base = Json::parse(model_config_text(preset("tiny", 274)));
  base["max_window_layers"] = 28;
  base["eos_token_id"] = 99;
  base["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
  base.erase("torch_dtype");
  base["dtype"] = "bfloat16";
  ModelConfig config = parse_model_config(base.dump(), "c");
  config.vocab_size = 300;
  config.dtype = "float32";
  config.eos_token_ids = {1, 2};  // as if from generation_config.json
  const Json text = Json::parse(model_config_text(config, base.dump()));
  CHECK(text["max_window_layers"] == 28);
  CHECK(text["eos_token_id"] == 99);
  CHECK(text["vocab_size"] == 300);
  CHECK(text["dtype"] == "float32");
  CHECK(text["rope_theta"] == 10000);

  config.layers = 3;
  CHECK_THROWS_WITH(model_config_text(config, base.dump()),
                    Contains("describes a different model"));
}
