#include "runtime/model/model_shape.hpp"

#include "runtime/model/presets.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::model;

TEST_CASE("known models have their published parameter counts", "[model]") {
  const ModelConfig qwen25_05b{.family = Family::qwen2,
                               .vocab_size = 151936,
                               .hidden_size = 896,
                               .intermediate_size = 4864,
                               .layers = 24,
                               .heads = 14,
                               .kv_heads = 2,
                               .head_dim = 64,
                               .tied = true,
                               .qkv_bias = true};
  CHECK(parameter_count(qwen25_05b) == 494'032'768);
  CHECK(non_embedding_count(qwen25_05b) == 357'898'112);
  const ModelConfig llama2_7b{.family = Family::llama,
                              .vocab_size = 32000,
                              .hidden_size = 4096,
                              .intermediate_size = 11008,
                              .layers = 32,
                              .heads = 32,
                              .kv_heads = 32,
                              .head_dim = 128};
  CHECK(parameter_count(llama2_7b) == 6'738'415'616);
  const ModelConfig llama31_8b{.family = Family::llama,
                               .vocab_size = 128256,
                               .hidden_size = 4096,
                               .intermediate_size = 14336,
                               .layers = 32,
                               .heads = 32,
                               .kv_heads = 8,
                               .head_dim = 128};
  CHECK(parameter_count(llama31_8b) == 8'030'261'248);
}

TEST_CASE("the tensor plan lists every tensor once, in the order of the files", "[model]") {
  ModelConfig config = preset("tiny", 10);
  config.layers = 1;
  config.tied = false;
  config.qk_norm = config.o_bias = config.mlp_bias = true;
  std::vector<std::string> names;
  for (const auto& tensor : tensor_plan(config)) names.push_back(tensor.name);
  CHECK(names == std::vector<std::string>{"model.embed_tokens.weight",
                                          "model.layers.0.self_attn.q_proj.weight",
                                          "model.layers.0.self_attn.q_proj.bias",
                                          "model.layers.0.self_attn.k_proj.weight",
                                          "model.layers.0.self_attn.k_proj.bias",
                                          "model.layers.0.self_attn.v_proj.weight",
                                          "model.layers.0.self_attn.v_proj.bias",
                                          "model.layers.0.self_attn.o_proj.weight",
                                          "model.layers.0.self_attn.o_proj.bias",
                                          "model.layers.0.self_attn.q_norm.weight",
                                          "model.layers.0.self_attn.k_norm.weight",
                                          "model.layers.0.mlp.gate_proj.weight",
                                          "model.layers.0.mlp.gate_proj.bias",
                                          "model.layers.0.mlp.up_proj.weight",
                                          "model.layers.0.mlp.up_proj.bias",
                                          "model.layers.0.mlp.down_proj.weight",
                                          "model.layers.0.mlp.down_proj.bias",
                                          "model.layers.0.input_layernorm.weight",
                                          "model.layers.0.post_attention_layernorm.weight",
                                          "model.norm.weight",
                                          "lm_head.weight"});
}
