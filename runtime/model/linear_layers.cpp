#include "runtime/model/linear_layers.hpp"

#include <algorithm>

namespace mgpu::model {

std::string_view LinearLayer::name() const {
  return module.substr(module.rfind('.') + 1);
}

std::vector<LinearLayer> linear_layers(const ModelConfig& c) {
  using enum Product;
  const auto hidden = c.hidden_size, mlp = c.intermediate_size;
  const auto q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  return {
      {qkv, "self_attn.q_proj", q, hidden, c.qkv_bias},
      {qkv, "self_attn.k_proj", kv, hidden, c.qkv_bias},
      {qkv, "self_attn.v_proj", kv, hidden, c.qkv_bias},
      {o, "self_attn.o_proj", hidden, q, c.o_bias},
      {gate_up, "mlp.gate_proj", mlp, hidden, c.mlp_bias},
      {gate_up, "mlp.up_proj", mlp, hidden, c.mlp_bias},
      {down, "mlp.down_proj", hidden, mlp, c.mlp_bias},
  };
}

std::vector<LinearLayer> linear_layers(const ModelConfig& config, Product product) {
  auto layers = linear_layers(config);
  std::erase_if(layers, [&](const LinearLayer& layer) { return layer.product != product; });
  return layers;
}

}  // namespace mgpu::model
