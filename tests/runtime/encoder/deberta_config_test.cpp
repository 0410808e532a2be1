#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/encoder/deberta_config.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::encoder;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

// The sizes of DeBERTa-v3 large.
json large() {
  return {{"model_type", "deberta-v2"},
          {"vocab_size", 128100},
          {"hidden_size", 1024},
          {"intermediate_size", 4096},
          {"num_hidden_layers", 24},
          {"num_attention_heads", 16},
          {"max_position_embeddings", 512},
          {"max_relative_positions", -1},
          {"position_buckets", 256},
          {"relative_attention", true},
          {"position_biased_input", false},
          {"pos_att_type", "p2c|c2p"},
          {"share_att_key", true},
          {"norm_rel_ebd", "layer_norm"},
          {"type_vocab_size", 0},
          {"layer_norm_eps", 1e-7}};
}

DebertaConfig read(const json& config) {
  return read_deberta_config(config.dump(), "config.json");
}

bool has(const DebertaConfig& config, const std::string& name) {
  const auto tensors = deberta_tensors(config);
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const auto& tensor) { return tensor.name == name; });
}

}  // namespace

TEST_CASE("the published DeBERTa-v3 large is read", "[encoder]") {
  const auto config = read(large());
  CHECK(config.span() == 256);
  CHECK(config.farthest == 512);
  CHECK(config.head_size() == 64);
  CHECK((config.content_to_position && config.position_to_content && config.shares_projections));
  CHECK(config.norms_positions);
  CHECK_FALSE(has(config, "deberta.embeddings.position_embeddings.weight"));
  CHECK_FALSE(has(config, "deberta.encoder.layer.0.attention.self.pos_key_proj.weight"));
  // 435,062,785 numbers in fp32, as transformers counts them.
  CHECK(deberta_weight_bytes(config) == 435'062'785LL * 4);
}

TEST_CASE("a classifier of another form has other tensors", "[encoder]") {
  json config = large();
  config["share_att_key"] = false;
  config["pos_att_type"] = {"c2p"};
  config["position_biased_input"] = true;
  config["type_vocab_size"] = 2;
  config["embedding_size"] = 128;
  config["position_buckets"] = -1;
  const auto read_config = read(config);
  CHECK(read_config.span() == 512);
  CHECK(has(read_config, "deberta.embeddings.position_embeddings.weight"));
  CHECK(has(read_config, "deberta.embeddings.token_type_embeddings.weight"));
  CHECK(has(read_config, "deberta.embeddings.embed_proj.weight"));
  CHECK(has(read_config, "deberta.encoder.layer.23.attention.self.pos_key_proj.bias"));
  CHECK_FALSE(has(read_config, "deberta.encoder.layer.0.attention.self.pos_query_proj.bias"));
}

TEST_CASE("what a DeBERTa model has and we do not support is rejected by its key", "[encoder]") {
  struct Case {
    const char* key;
    json value;
    const char* why;
  };
  const auto [key, value, why] = GENERATE(values<Case>({
      {"conv_kernel_size", 3, "conv_kernel_size: the convolution of DeBERTa-v2 xlarge"},
      {"hidden_act", "mish", "hidden_act: 'mish' is not supported"},
      {"pooler_hidden_act", "gelu_10", "pooler_hidden_act: 'gelu_10' is not supported"},
      {"pos_att_type", "p2p", "pos_att_type: 'p2p' is not supported"},
      {"num_attention_heads", 7, "hidden_size must be a multiple of num_attention_heads"},
      {"attention_head_size", 32, "attention_head_size"},
      {"pooler_hidden_size", 32, "pooler_hidden_size"},
      {"layer_norm_eps", 0, "layer_norm_eps"},
      {"position_buckets", 1, "position_buckets: need at least 2"},
      {"max_relative_positions", 129, "larger than half of position_buckets"},
      {"vocab_size", -1, "vocab_size"},
      {"hidden_size", 1 << 20, "hidden_size"},
      {"num_attention_heads", 1 << 12, "num_attention_heads"},
  }));
  json config = large();
  config[key] = value;
  CAPTURE(key, value.dump());
  CHECK_THROWS_WITH(read(config), Contains(why));
}

TEST_CASE("the memory of the largest DeBERTa model that is read is a number", "[encoder]") {
  json config = large();
  for (const auto* key : {"hidden_size", "embedding_size", "pooler_hidden_size",
                          "intermediate_size", "max_position_embeddings"})
    config[key] = 1 << 17;
  config["position_buckets"] = -1;
  config["num_attention_heads"] = 1 << 10;
  config["num_hidden_layers"] = 10'000;
  config["attention_head_size"] = 1 << 7;
  const auto largest = read(config);
  CHECK(deberta_weight_bytes(largest) > 0);
  CHECK(deberta_forward_bytes(largest, std::int64_t{1} << 30) > 0);
}

TEST_CASE("a forward pass needs more memory for more or longer texts", "[encoder]") {
  const auto config = read(large());
  CHECK(deberta_forward_bytes(config, 4096) > 2 * deberta_forward_bytes(config, 1024));
  CHECK(deberta_forward_bytes(config, 4096) > 4096LL * 16 * 512 * 4 * 3);
}
