#include "runtime/model/read_config.hpp"

#include <nlohmann/json.hpp>

#include "runtime/checkpoint/file.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/passing_failure.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::model;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;
using Json = nlohmann::json;

namespace {

Json small(const std::string& type = "llama") {
  return {{"model_type", type},       {"vocab_size", 100},
          {"hidden_size", 32},        {"intermediate_size", 64},
          {"num_hidden_layers", 2},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},     {"torch_dtype", "bfloat16"}};
}

ModelConfig read(const Json& json) {
  return parse_model_config(json.dump(), "c.json");
}

ModelConfig with(const char* key, const Json& value, const std::string& type = "llama") {
  Json json = small(type);
  json[key] = value;
  return read(json);
}

}  // namespace

TEST_CASE("the formats of transformers 4 and 5 are read the same", "[config]") {
  const Json llama3 = {{"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  Json four = small(), five = small();
  four["rope_theta"] = 5e5;
  four["rope_scaling"] = llama3;
  four["rope_scaling"][GENERATE("rope_type", "type")] = "llama3";
  five.erase("torch_dtype");
  five["dtype"] = "bfloat16";
  five["rope_parameters"] = llama3;
  five["rope_parameters"]["rope_type"] = "llama3";
  five["rope_parameters"]["rope_theta"] = 5e5;
  CHECK(read(four) == read(five));
  CHECK(read(five).rope == Rope{.kind = Rope::Kind::llama3,
                                .theta = 5e5,
                                .factor = 8,
                                .low_freq_factor = 1,
                                .high_freq_factor = 4,
                                .original_max_position = 8192});
}

TEST_CASE("files that a save could not copy are rejected before the training", "[config]") {
  const TempDir dir;
  const auto write = [&](const std::string& name, Json json, std::size_t bytes) {
    json["unknown"] = std::string(bytes, 'x');
    mgpu::checkpoint::write_file(dir.path(name), json.dump());
  };
  write("config.json", small(), 1000);
  write("generation_config.json", {{"eos_token_id", 3}}, 1 << 20);
  CHECK_THROWS_WITH(read_model_config(dir.root()), Contains("has more than 1048576 bytes"));
  write("generation_config.json", {{"eos_token_id", 3}}, 1000);
  CHECK(read_model_config(dir.root()).eos_token_ids == std::vector<std::int32_t>{3});
  write("config.json", small(), 1 << 20);
  CHECK_THROWS_WITH(read_model_config(dir.root()), Contains("has more than 1048576 bytes"));
}

TEST_CASE("an adapter in the place of a model is not reported as a missing file", "[config]") {
  const mgpu::tests::TempDir dir;
  CHECK_THROWS_WITH(read_model_config(dir.root().string()), Contains("config.json: No such file"));
  mgpu::checkpoint::write_file(dir.path("adapter_config.json"), "{}");
  CHECK_THROWS_WITH(read_model_config(dir.root().string()),
                    Contains(" contains an adapter, not a model; give its base model"));
}

TEST_CASE("rope keys that contradict each other are rejected", "[config]") {
  Json json = small();
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}};
  json["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2}};
  CHECK(read(json).rope.factor == 2);
  json["rope_parameters"]["factor"] = 4;
  CHECK_THROWS_WITH(read(json), Contains("rope_scaling and rope_parameters contradict"));
}

TEST_CASE("families differ in biases, norms and head_dim", "[config]") {
  const ModelConfig llama = read(small("llama")), qwen2 = read(small("qwen2"));
  CHECK((!llama.qkv_bias && !llama.qk_norm && llama.head_dim == 8));
  CHECK((qwen2.qkv_bias && !qwen2.o_bias && !qwen2.qk_norm && qwen2.head_dim == 8));
  const ModelConfig qwen3 = with("head_dim", 128, "qwen3");
  CHECK((!qwen3.qkv_bias && qwen3.qk_norm && qwen3.head_dim == 128));
  CHECK(read(small("qwen3")).head_dim == 128);
  const ModelConfig biased = with("attention_bias", true);
  CHECK((biased.qkv_bias && biased.o_bias && !biased.mlp_bias));
  CHECK(with("mlp_bias", true).mlp_bias);
}

TEST_CASE("absent and null keys have transformers' defaults", "[config]") {
  Json json = small();
  json["num_key_value_heads"] = nullptr;
  json["head_dim"] = nullptr;
  json["rope_scaling"] = nullptr;
  json["sliding_window"] = nullptr;
  json.erase("torch_dtype");
  const ModelConfig config = read(json);
  CHECK(config.kv_heads == 4);
  CHECK(config.rope == Rope{});
  CHECK(config.dtype == "float32");
  CHECK_FALSE(config.tied);
  CHECK(config.eos_token_ids.empty());
}

TEST_CASE("the sliding window in Qwen2.5's files is unused unless it is switched on", "[config]") {
  Json json = small("qwen2");
  json["use_sliding_window"] = false;
  json["sliding_window"] = 131072;
  json["max_window_layers"] = 1;
  CHECK_NOTHROW(read(json));
  json["use_sliding_window"] = true;
  CHECK_THROWS_WITH(read(json), Contains("use_sliding_window"));
  json["max_window_layers"] = 2;  // both layers are below it
  CHECK_NOTHROW(read(json));
  json["layer_types"] = {"full_attention", "sliding_attention"};
  CHECK_THROWS_WITH(read(json), Contains("layer_types: 'sliding_attention' is not supported"));
}

TEST_CASE("Mistral's window is read, and without the key it is transformers' default", "[config]") {
  CHECK(with("sliding_window", 512, "mistral").sliding_window == 512);
  CHECK(with("sliding_window", nullptr, "mistral").sliding_window == 0);
  CHECK(read(small("mistral")).sliding_window == 4096);
  CHECK_THROWS_WITH(with("sliding_window", 0, "mistral"), Contains("sliding_window must be"));
  CHECK(with("sliding_window", 512, "llama").sliding_window == 0);
}

TEST_CASE("Mistral has Llama's block without biases", "[config]") {
  const ModelConfig config = with("head_dim", 128, "mistral");
  CHECK((!config.qkv_bias && !config.o_bias && !config.mlp_bias && !config.qk_norm));
  CHECK(config.head_dim == 128);
  CHECK(read(small("mistral")).head_dim == 8);
}

TEST_CASE("a sequence may be as long as the window", "[config]") {
  CHECK(with("sliding_window", nullptr, "mistral").longest_sequence() == 512);
  CHECK(with("sliding_window", 100, "mistral").longest_sequence() == 100);
  CHECK(with("sliding_window", 4096, "mistral").longest_sequence() == 512);
}

TEST_CASE("unsupported features are rejected by name", "[config]") {
  struct Case {
    const char* key;
    Json value;
    const char* message;
  };
  const auto [key, value, message] = GENERATE(values<Case>({
      {"model_type", "gpt2", "model_type 'gpt2' is not supported; llama, mistral, qwen2 and qwen3"},
      {"model_type", "qwen3_moe", "'qwen3_moe': mixtures of experts"},
      {"num_local_experts", 8, "num_local_experts: mixtures of experts"},
      {"is_encoder_decoder", true, "is_encoder_decoder"},
      {"hidden_act", "gelu", "hidden_act 'gelu' is not supported"},
      {"attention_dropout", 0.1, "attention_dropout must be 0"},
      {"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}, "rope type 'dynamic'"},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}, "rope_scaling: rope type 'yarn'"},
      {"rope_parameters", {{"rope_type", "longrope"}}, "rope_parameters: rope type 'longrope'"},
      {"rope_scaling", {{"rope_type", "linear"}}, "rope_scaling: factor is missing"},
      {"rope_scaling", {{"type", "linear"}, {"rope_type", "llama3"}}, "but type 'linear'"},
      {"rope_scaling", {{"type", "default"}, {"mrope_section", {1, 2}}}, "mrope_section"},
      {"rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}, "by layer"},
      {"partial_rotary_factor", 0.5, "partial_rotary_factor must be 1"},
      {"quantization_config", {{"quant_method", "gptq"}}, "quant_method 'gptq'"},
      {"quantization_config", {{"load_in_8bit", true}}, "load_in_8bit: 8-bit weights"},
      {"quantization_config", {{"load_in_4bit", true}}, "bnb_4bit_quant_type 'fp4'"},
      {"torch_dtype", "float64", "torch_dtype 'float64' is not supported"},
  }));
  CAPTURE(key, message);
  CHECK_THROWS_WITH(with(key, value), Contains("c.json") && Contains(message));
}

TEST_CASE("invalid sizes are rejected by name", "[config]") {
  struct Case {
    const char* key;
    Json value;
    const char* message;
  };
  const auto [key, value, message] = GENERATE(values<Case>({
      {"vocab_size", 0, "vocab_size must be a whole number from 1"},
      {"vocab_size", "many", "vocab_size must be a whole number from 1"},
      {"hidden_size", 1e30, "hidden_size"},
      {"num_key_value_heads", 3, "num_key_value_heads must be a divisor of num_attention_heads"},
      {"num_attention_heads", 6, "hidden_size must be a multiple of num_attention_heads"},
      {"head_dim", 7, "head_dim 7 is odd"},
      {"rms_norm_eps", 0, "rms_norm_eps must be a number above 0"},
      {"rope_theta", -1, "rope_theta must be a number above 0"},
      {"num_hidden_layers", nullptr, "num_hidden_layers is missing"},
      {"eos_token_id", -2, "eos_token_id must be a whole number from 0"},
      {"eos_token_id", {1, "x"}, "eos_token_id"},
      {"tie_word_embeddings", "yes", "tie_word_embeddings must be true or false, not 'yes'"},
  }));
  CAPTURE(key);
  CHECK_THROWS_WITH(with(key, value), Contains(message));
}

TEST_CASE("weights in bitsandbytes' nf4 are recognized", "[config]") {
  CHECK(with("quantization_config", {{"quant_method", "bitsandbytes"},
                                     {"load_in_4bit", true},
                                     {"bnb_4bit_quant_type", "nf4"}})
            .nf4);
}

TEST_CASE("eos_token_id comes from generation_config.json, else from config.json", "[config]") {
  const TempDir dir(TempDir::in_memory());
  Json json = small();
  json["eos_token_id"] = 7;
  json["bos_token_id"] = 1;
  json["pad_token_id"] = -1;
  mgpu::checkpoint::write_file(dir.path("config.json"), json.dump());
  const ModelConfig config = read_model_config(dir.root());
  CHECK(config.eos_token_ids == std::vector<std::int32_t>{7});
  CHECK(config.bos_token_id == 1);
  CHECK_FALSE(config.pad_token_id);
  mgpu::checkpoint::write_file(dir.path("generation_config.json"), R"({"eos_token_id": [8, 9]})");
  CHECK(read_model_config(dir.path("config.json")).eos_token_ids ==
        std::vector<std::int32_t>{8, 9});
  mgpu::checkpoint::write_file(dir.path("generation_config.json"), "{}");
  CHECK(read_model_config(dir.root()).eos_token_ids == std::vector<std::int32_t>{7});
}

TEST_CASE("a model that cannot be looked for is not reported as missing", "[config]") {
  const TempDir dir(TempDir::in_memory());
  mgpu::tests::make_unreadable(dir.path("loop"));
  CHECK(mgpu::tests::fails_for_now([&] { read_model_config(dir.path("loop")); }));
  mgpu::tests::make_unreadable(dir.path("config.json"));
  CHECK(mgpu::tests::fails_for_now([&] { read_model_config(dir.root()); }));
}

TEST_CASE("end tokens that the vocabulary does not have are left out", "[config]") {
  const TempDir dir(TempDir::in_memory());
  using Ids = std::vector<std::int32_t>;
  Json json = small();
  json["eos_token_id"] = {7, 100, 100000};
  mgpu::checkpoint::write_file(dir.path("config.json"), json.dump());
  CHECK(read_model_config(dir.root()).eos_token_ids == Ids{7});
  mgpu::checkpoint::write_file(dir.path("generation_config.json"), R"({"eos_token_id": [100, 9]})");
  CHECK(read_model_config(dir.root()).eos_token_ids == Ids{9});
  mgpu::checkpoint::write_file(dir.path("generation_config.json"), R"({"eos_token_id": 100})");
  CHECK(read_model_config(dir.root()).eos_token_ids == Ids{7});
}
