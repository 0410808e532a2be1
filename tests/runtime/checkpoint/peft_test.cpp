#include "runtime/checkpoint/peft.hpp"

#include <nlohmann/json.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::checkpoint;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;
using Json = nlohmann::json;

namespace {

const std::vector<TensorShape> kModel = {
    {"model.embed_tokens.weight", {50, 8}},
    {"model.layers.0.self_attn.q_proj.weight", {12, 8}},
    {"model.layers.0.self_attn.q_proj.bias", {12}},
    {"model.layers.0.mlp.down_proj.weight", {8, 16}},
    {"model.layers.1.self_attn.q_proj.weight", {12, 8}},
    {"model.layers.1.mlp.down_proj.weight", {8, 16}},
    {"model.norm.weight", {8}},
    {"lm_head.weight", {50, 8}},
};

std::vector<std::string> modules(const LoraConfig& config) {
  std::vector<std::string> names;
  for (const LoraTarget& target : lora_targets(config, kModel)) names.push_back(target.module);
  return names;
}

LoraConfig parse(const Json& json) {
  return parse_lora_config(json.dump(), "a.json");
}

Json plain() {
  return {{"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"target_modules", {"q_proj"}}};
}

using Names = std::vector<std::string>;
const std::string kQ0 = "model.layers.0.self_attn.q_proj", kQ1 = "model.layers.1.self_attn.q_proj";
const std::string kD0 = "model.layers.0.mlp.down_proj", kD1 = "model.layers.1.mlp.down_proj";

}  // namespace

TEST_CASE("an adapter's config survives writing and reading", "[peft]") {
  LoraConfig config{.base_model = "org/base",
                    .revision = "v1",
                    .r = 4,
                    .alpha = 8.5,
                    .dropout = 0.1,
                    .target_modules = {"k_proj", "q_proj"},
                    .modules_to_save = {"lm_head"},
                    .use_rslora = true,
                    .use_dora = true,
                    .rank_pattern = {{"k_proj", 2}},
                    .alpha_pattern = {{"q_proj", 3}}};
  CHECK(parse_lora_config(lora_config_text(config), "a") == config);
  config = {.target_pattern = "all-linear"};
  CHECK(parse_lora_config(lora_config_text(config), "a") == config);
}

TEST_CASE("kinds of adapters that are not supported are rejected with their key", "[peft]") {
  struct Case {
    const char* key;
    Json value;
    const char* message;
  };
  const auto [key, value, message] = GENERATE(values<Case>({
      {"lora_bias", true, "'lora_bias' is not supported; only LoRA, rsLoRA and DoRA are"},
      {"layers_to_transform", {0}, "'layers_to_transform'"},
      {"something_new", "x", "'something_new'"},
      {"bias", "lora_only", "bias must be 'none'"},
      {"peft_type", "LOHA", "peft_type must be 'LORA', not 'LOHA'"},
      {"init_lora_weights", "pissa", "init_lora_weights must be true, false or 'gaussian'"},
      {"r", 0, "r must be a whole number from 1"},
      {"lora_dropout", 1, "lora_dropout must be a number from 0 to below 1"},
      {"target_modules", Json::array(), "target_modules must be a list of names or a pattern"},
      {"target_modules", 3, "target_modules must be a list of strings"},
      {"rank_pattern", {{"x", "y"}}, "a.json: rank_pattern: x must be a whole number"},
  }));
  Json json = plain();
  json[key] = value;
  CAPTURE(key);
  CHECK_THROWS_WITH(parse(json), Contains("a.json") && Contains(message));
  json = plain();
  json["something_new"] = GENERATE(Json(nullptr), Json(false), Json::array(), Json::object());
  CHECK_NOTHROW(parse(json));
}

TEST_CASE("targets are suffixes of names, all linear layers or a pattern", "[peft]") {
  CHECK(modules({.target_modules = {"q_proj"}}) == Names{kQ0, kQ1});
  CHECK(modules({.target_modules = {"1.self_attn.q_proj", "lm_head"}}) == Names{kQ1, "lm_head"});
  CHECK(modules({.target_pattern = "all-linear"}) == Names{kQ0, kD0, kQ1, kD1});
  CHECK(modules({.target_pattern = R"(.*\.0\..*_proj)"}) == Names{kQ0, kD0});
  CHECK(modules({.target_modules = {"q_proj", "lm_head"}, .modules_to_save = {"lm_head"}}) ==
        Names{kQ0, kQ1});
}

TEST_CASE("targets that the model does not have are reported", "[peft]") {
  CHECK_THROWS_WITH(
      modules({.target_modules = {"q_proj", "proj"}}),
      Contains("'proj' is not a linear layer of this model; it has down_proj, lm_head,"));
  CHECK_THROWS_WITH(modules({.target_pattern = "q_proj"}), Contains("'q_proj' matches no linear"));
  CHECK_THROWS_WITH(modules({.target_pattern = "("}), Contains("invalid pattern '(' at"));
  CHECK_THROWS_WITH(modules({.target_pattern = "(.+)+(.+)+(.+)+[QZ]"}), Contains("cannot be"));
  CHECK_THROWS_WITH(modules({.target_modules = {"embed_tokens"}}), Contains("modules_to_save"));
  CHECK_THROWS_WITH(saved_parameters({.modules_to_save = {"score"}}, kModel),
                    Contains("modules_to_save: 'score' has no parameters"));
  auto tied = kModel;
  tied.pop_back();
  CHECK_THROWS_WITH(saved_parameters({.modules_to_save = {"lm_head"}}, tied),
                    Contains("tied to the embedding"));
}

TEST_CASE("rank and scale follow the patterns", "[peft]") {
  LoraConfig config{.r = 4,
                    .alpha = 8,
                    .target_modules = {"q_proj", "down_proj"},
                    .rank_pattern = {{"0.self_attn.q_proj", 16}},
                    .alpha_pattern = {{"down_proj", 2}}};
  const auto scales = [&] {
    std::vector<double> all;
    for (const LoraTarget& target : lora_targets(config, kModel)) all.push_back(target.scale);
    return all;
  };
  CHECK(scales() == std::vector<double>{0.5, 0.5, 2, 0.5});
  config.use_rslora = true;
  CHECK(scales() == std::vector<double>{2, 1, 4, 1});
  CHECK(lora_targets(config, kModel)[0] ==
        LoraTarget{.module = kQ0, .out = 12, .in = 8, .rank = 16, .scale = 2});
  config.rank_pattern = {{"q_proj", 1}, {"self_attn.q_proj", 2}};
  CHECK_THROWS_WITH(lora_targets(config, kModel), Contains("rank_pattern: several patterns"));
}

TEST_CASE("keys of the adapter file are those of PEFT", "[peft]") {
  using Part = AdapterKey::Part;
  CHECK(adapter_key({Part::lora_a, kQ0}) ==
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  const AdapterKey key{GENERATE(Part::lora_a, Part::lora_b, Part::magnitude, Part::whole),
                       "lm_head.weight"};
  CHECK(parse_adapter_key(adapter_key(key)) == key);
  CHECK_THROWS_WITH(parse_adapter_key("model.x.weight"), Contains("'base_model.model.'"));
  CHECK(adapter_key({Part::magnitude, kQ0}) ==
        "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector");
  CHECK_THROWS_WITH(parse_adapter_key("base_model.model.x.lora_embedding_A"), Contains("kind"));
  CHECK_THROWS_WITH(parse_adapter_key("base_model.model."), Contains("no parameter"));
}

TEST_CASE("every tensor of an adapter is checked against its config", "[peft]") {
  const LoraConfig config{
      .r = 2, .target_modules = {"0.self_attn.q_proj"}, .modules_to_save = {"lm_head"}};
  const auto plan = adapter_plan(config, kModel);
  CHECK(plan == std::vector<TensorShape>{{"base_model.model." + kQ0 + ".lora_A.weight", {2, 8}},
                                         {"base_model.model." + kQ0 + ".lora_B.weight", {12, 2}},
                                         {"base_model.model.lm_head.weight", {50, 8}}});
  const TempDir dir(TempDir::in_memory());
  const auto write = [&](std::vector<TensorShape> tensors) {
    std::vector<TensorPlan> all;
    for (const auto& tensor : tensors) all.push_back({tensor.name, DType::u8, tensor.shape});
    WeightsWriter writer(dir.root(), all, kShardSize, "adapter_model");
    for (const auto& tensor : all)
      writer.write(tensor.name, std::vector<std::byte>(*bytes_needed(DType::u8, tensor.shape)));
    writer.finish();
    check_adapter(Weights(dir.root(), "adapter_model"), config, kModel);
  };
  CHECK_NOTHROW(write(plan));
  auto other = plan;
  other.pop_back();
  CHECK_THROWS_WITH(write(other), Contains("'base_model.model.lm_head.weight' is missing"));
  other = plan;
  other[0].shape = {8, 2};
  CHECK_THROWS_WITH(write(other), Contains("lora_A.weight' has shape [8, 2], but [2, 8]"));
  other = plan;
  other.push_back({"base_model.model." + kD0 + ".lora_A.weight", {2, 16}});
  CHECK_THROWS_WITH(write(other), Contains("which adapter_config.json does not name"));
}
