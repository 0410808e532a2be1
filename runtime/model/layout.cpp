#include "runtime/model/layout.hpp"

#include <fmt/format.h>

#include <functional>
#include <numeric>
#include <stdexcept>

#include "runtime/kernels/nf4_layout.hpp"
#include "runtime/model/linear_layers.hpp"

namespace mgpu::model {
namespace {

using Shape = std::vector<std::int64_t>;

// Fills one unit's layout. Groups of tensors are aligned, tensors within a group are not.
class UnitBuilder {
 public:
  UnitBuilder(UnitLayout& unit, const LoraShape& lora, const FourBit& four_bit)
      : unit_(unit), lora_(lora), four_bit_(four_bit) {
    unit_.nested = four_bit.nested;
  }

  // `module` is the name without the layer prefix; it decides whether the tensor is trained.
  void add(const std::string& prefix, std::string_view module, const std::string& kind, Shape shape,
           bool decay) {
    place(is_trained(module) ? unit_.trained : unit_.frozen,
          Slot{fmt::format("{}{}.{}", prefix, module, kind), std::move(shape), 0, 0, decay});
  }

  // Joined layers are multiplied as one matrix, so either all or none of them may be in 4 bits.
  void require_same_precision(const std::string& prefix,
                              const std::vector<LinearLayer>& joined) const {
    const auto excepted = [&](const LinearLayer& layer) {
      return four_bit_.excepted.contains(fmt::format("{}{}.weight", prefix, layer.module));
    };
    for (const auto& layer : joined) {
      if (excepted(layer) == excepted(joined.front())) continue;
      throw std::runtime_error(
          fmt::format("{0}{1} and {0}{2} must both be in 4 bits or both not: "
                      "mixing them is not supported",
                      prefix, joined.front().module, layer.module));
    }
  }

  // The weight of a linear layer.
  void matrix(const std::string& prefix, std::string_view module, Shape shape) {
    auto name = fmt::format("{}{}.weight", prefix, module);
    if (!four_bit_.on || is_trained(module) || four_bit_.excepted.contains(name)) {
      add(prefix, module, "weight", std::move(shape), true);
      return;
    }
    const auto elements = shape[0] * shape[1];
    if (elements % ops::kNf4Block != 0) {
      throw std::runtime_error(
          fmt::format("{} has {} elements, which is not a multiple of {}, so it cannot be "
                      "stored in 4 bits; remove load_in_4bit",
                      name, elements, ops::kNf4Block));
    }
    const auto bytes = ops::nf4_layout(elements, four_bit_.nested).bytes;
    unit_.packed.slots.push_back({std::move(name), std::move(shape), unit_.packed.size, bytes});
    unit_.packed.size += bytes;
  }

  void adapter(const std::string& prefix, const LinearLayer& layer, const std::string& kind,
               Shape shape) {
    if (!has_adapter(layer)) return;
    place(unit_.trained, Slot{fmt::format("{}{}.{}.weight", prefix, layer.module, kind),
                              std::move(shape), 0, 0, true});
  }

  void end_group() {
    for (FlatLayout* flat : {&unit_.trained, &unit_.frozen})
      flat->size = (flat->size + FlatLayout::kAlign - 1) / FlatLayout::kAlign * FlatLayout::kAlign;
  }

 private:
  bool is_trained(std::string_view module) const {
    return lora_.rank == 0 ||
           lora_.whole.contains(std::string(module.substr(module.rfind('.') + 1)));
  }

  bool has_adapter(const LinearLayer& layer) const {
    return lora_.rank > 0 && layer.adapters && lora_.targets.contains(std::string(layer.name()));
  }

  static void place(FlatLayout& flat, Slot slot) {
    slot.numel =
        std::accumulate(slot.shape.begin(), slot.shape.end(), std::int64_t{1}, std::multiplies<>());
    slot.offset = flat.size;
    flat.size += slot.numel;
    flat.slots.push_back(std::move(slot));
  }

  UnitLayout& unit_;
  const LoraShape& lora_;
  const FourBit& four_bit_;
};

// Joined linear layers: weights together, then biases, then adapters.
void add_linear(UnitBuilder& builder, const std::string& prefix,
                const std::vector<LinearLayer>& joined, std::int64_t rank) {
  builder.require_same_precision(prefix, joined);
  for (const auto& layer : joined) builder.matrix(prefix, layer.module, {layer.out, layer.in});
  builder.end_group();
  for (const auto& layer : joined)
    if (layer.bias) builder.add(prefix, layer.module, "bias", {layer.out}, false);
  builder.end_group();
  for (const auto& layer : joined) builder.adapter(prefix, layer, "lora_A", {rank, layer.in});
  builder.end_group();
  for (const auto& layer : joined) {
    builder.adapter(prefix, layer, "lora_B", {layer.out, rank});
    builder.end_group();
  }
}

void add_norm(UnitBuilder& builder, const std::string& prefix, const char* module,
              std::int64_t width) {
  builder.add(prefix, module, "weight", {width}, false);
  builder.end_group();
}

UnitLayout block(const ModelConfig& c, std::int64_t layer, const LoraShape& lora,
                 const FourBit& four_bit) {
  UnitLayout unit;
  UnitBuilder builder(unit, lora, four_bit);
  const auto prefix = block_prefix(layer);
  const auto add = [&](Product product) {
    add_linear(builder, prefix, linear_layers(c, product), lora.rank);
  };
  add_norm(builder, prefix, "input_layernorm", c.hidden_size);
  add(Product::qkv);
  if (c.qk_norm) {
    add_norm(builder, prefix, "self_attn.q_norm", c.head_dim);
    add_norm(builder, prefix, "self_attn.k_norm", c.head_dim);
  }
  add(Product::o);
  add_norm(builder, prefix, "post_attention_layernorm", c.hidden_size);
  add(Product::gate_up);
  add(Product::down);
  return unit;
}

std::int64_t elements(const Slot& slot) {
  return std::accumulate(slot.shape.begin(), slot.shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

std::int64_t count(const ModelLayout& layout, FlatLayout UnitLayout::* part) {
  std::int64_t sum = 0;
  for (const auto& unit : layout.units)
    for (const auto& slot : (unit.*part).slots) sum += elements(slot);
  return sum;
}

}  // namespace

const Slot* FlatLayout::find(const std::string& name) const {
  for (const auto& slot : slots)
    if (slot.name == name) return &slot;
  return nullptr;
}

std::int64_t ModelLayout::trained() const {
  return count(*this, &UnitLayout::trained);
}
std::int64_t ModelLayout::frozen() const {
  return count(*this, &UnitLayout::frozen) + count(*this, &UnitLayout::packed);
}

std::string block_prefix(std::int64_t layer) {
  return fmt::format("model.layers.{}.", layer);
}

ModelLayout lay_out(const ModelConfig& config, const LoraShape& lora, const FourBit& four_bit) {
  ModelLayout layout;
  UnitLayout embedding;
  UnitBuilder first(embedding, lora, four_bit);
  first.add("model.", "embed_tokens", "weight", {config.vocab_size, config.hidden_size}, true);
  first.end_group();
  layout.units.push_back(std::move(embedding));
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    layout.units.push_back(block(config, layer, lora, four_bit));
  UnitLayout end;
  UnitBuilder last(end, lora, four_bit);
  add_norm(last, "model.", "norm", config.hidden_size);
  if (!config.tied) {
    last.add("", "lm_head", "weight", {config.vocab_size, config.hidden_size}, true);
    last.end_group();
  }
  layout.units.push_back(std::move(end));
  return layout;
}

}  // namespace mgpu::model
