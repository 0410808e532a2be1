#include "runtime/model/linear_layers.hpp"

#include <algorithm>

#include "runtime/model/layout.hpp"
#include "runtime/model/model_shape.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::model;

namespace {

ModelConfig with_biases() {
  ModelConfig config;
  config.vocab_size = 100;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.qkv_bias = config.o_bias = config.mlp_bias = config.qk_norm = true;
  return config;
}

}  // namespace

TEST_CASE("linear layers have the rows and columns that follow from the model", "[model]") {
  using enum Product;
  const auto config = with_biases();
  CHECK(linear_layers(config) == std::vector<LinearLayer>{
                                     {qkv, "self_attn.q_proj", 64, 32, true},
                                     {qkv, "self_attn.k_proj", 32, 32, true},
                                     {qkv, "self_attn.v_proj", 32, 32, true},
                                     {o, "self_attn.o_proj", 32, 64, true},
                                     {gate_up, "mlp.gate_proj", 48, 32, true},
                                     {gate_up, "mlp.up_proj", 48, 32, true},
                                     {down, "mlp.down_proj", 32, 48, true},
                                 });
  CHECK(linear_layers(config, gate_up).size() == 2);
  CHECK(linear_layers(config, down).front().name() == "down_proj");
}

TEST_CASE("a checkpoint's linear layers are those of the table", "[model]") {
  const auto plan = tensor_plan(with_biases());
  const auto shape_of = [&](const std::string& name) {
    const auto found = std::ranges::find(plan, name, &mgpu::checkpoint::TensorShape::name);
    return found == plan.end() ? std::vector<std::int64_t>() : found->shape;
  };
  for (const auto& layer : linear_layers(with_biases())) {
    const auto name = block_prefix(1) + std::string(layer.module);
    CAPTURE(name);
    CHECK(shape_of(name + ".weight") == std::vector{layer.out, layer.in});
    CHECK(shape_of(name + ".bias") == std::vector{layer.out});
  }
}

TEST_CASE("the weights and biases of joined layers are neighbours in memory", "[model]") {
  const auto layout = lay_out(with_biases());
  const auto& flat = layout.units[static_cast<std::size_t>(block_unit(0))].trained;
  const auto product = GENERATE(Product::qkv, Product::o, Product::gate_up, Product::down);
  for (const char* kind : {".weight", ".bias"}) {
    std::int64_t end = -1;
    for (const auto& layer : linear_layers(with_biases(), product)) {
      const auto* slot = flat.find(block_prefix(0) + std::string(layer.module) + kind);
      REQUIRE(slot != nullptr);
      CHECK((end < 0 ? slot->offset % FlatLayout::kAlign == 0 : slot->offset == end));
      end = slot->offset + slot->numel;
    }
  }
}

TEST_CASE("only the layers that are asked for get an adapter", "[model]") {
  const auto layout = lay_out(with_biases(), {.rank = 4, .targets = {"k_proj", "down_proj"}});
  const auto& block = layout.units[static_cast<std::size_t>(block_unit(0))];
  for (const auto& layer : linear_layers(with_biases())) {
    const auto name = block_prefix(0) + std::string(layer.module);
    CAPTURE(name);
    const bool adapted = layer.name() == "k_proj" || layer.name() == "down_proj";
    const auto* a = block.trained.find(name + ".lora_A.weight");
    const auto* b = block.trained.find(name + ".lora_B.weight");
    CHECK((a != nullptr) == adapted);
    CHECK((b != nullptr) == adapted);
    if (!adapted) continue;
    CHECK(a->shape == std::vector<std::int64_t>{4, layer.in});
    CHECK(b->shape == std::vector<std::int64_t>{layer.out, 4});
  }
}
