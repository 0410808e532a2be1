#include "runtime/model/model_shape.hpp"

#include <fmt/format.h>

#include <string>

#include "runtime/model/linear_layers.hpp"

namespace mgpu::model {

namespace {

using checkpoint::TensorShape;
using Shape = std::vector<std::int64_t>;

class Plan {
 public:
  void add(const std::string& name, Shape shape) { all_.push_back({name, std::move(shape)}); }
  void linear(const std::string& prefix, const LinearLayer& layer) {
    const auto name = fmt::format("{}{}", prefix, layer.module);
    add(name + ".weight", {layer.out, layer.in});
    if (layer.bias) add(name + ".bias", {layer.out});
  }
  std::vector<TensorShape> take() { return std::move(all_); }

 private:
  std::vector<TensorShape> all_;
};

void add_layer(Plan& plan, const ModelConfig& c, std::int64_t layer) {
  const std::string at = fmt::format("model.layers.{}.", layer);
  const auto add = [&](Product product) {
    for (const auto& linear : linear_layers(c, product)) plan.linear(at, linear);
  };
  add(Product::qkv);
  add(Product::o);
  if (c.qk_norm) {
    plan.add(at + "self_attn.q_norm.weight", {c.head_dim});
    plan.add(at + "self_attn.k_norm.weight", {c.head_dim});
  }
  add(Product::gate_up);
  add(Product::down);
  plan.add(at + "input_layernorm.weight", {c.hidden_size});
  plan.add(at + "post_attention_layernorm.weight", {c.hidden_size});
}

}  // namespace

std::vector<TensorShape> tensor_plan(const ModelConfig& config) {
  Plan plan;
  plan.add("model.embed_tokens.weight", {config.vocab_size, config.hidden_size});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) add_layer(plan, config, layer);
  plan.add("model.norm.weight", {config.hidden_size});
  if (!config.tied) plan.add("lm_head.weight", {config.vocab_size, config.hidden_size});
  return plan.take();
}

std::int64_t parameter_count(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const TensorShape& tensor : tensor_plan(config)) {
    std::int64_t elements = 1;
    for (const std::int64_t side : tensor.shape) elements *= side;
    count += elements;
  }
  return count;
}

std::int64_t non_embedding_count(const ModelConfig& config) {
  return parameter_count(config) - config.vocab_size * config.hidden_size * (config.tied ? 1 : 2);
}

}  // namespace mgpu::model
