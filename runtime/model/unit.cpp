#include "runtime/model/unit.hpp"

#include <fmt/format.h>

namespace mgpu::model {
namespace {

// Makes views of one unit's tensors in its flat buffers.
class Binder {
 public:
  Binder(const UnitLayout& layout, const UnitMemory& memory) : layout_(layout), memory_(memory) {}

  Tensor tensor(const std::string& name) const {
    const auto [slot, flat] = find(name);
    return slot != nullptr && flat->defined() ? view(*flat, *slot, slot->shape[0]) : Tensor();
  }

  // Neighbouring tensors as one: their shapes may differ only in the first dimension.
  Tensor joined(const std::vector<std::string>& names) const {
    const auto [first, flat] = find(names.front());
    if (first == nullptr || !flat->defined()) return {};
    std::int64_t rows = 0;
    for (const auto& name : names) rows += find(name).first->shape[0];
    return view(*flat, *first, rows);
  }

  // Those of the named matrices that are in 4 bits; empty for gradients.
  std::vector<ops::Nf4> packed(const std::vector<std::string>& names) const {
    std::vector<ops::Nf4> result;
    for (const auto& name : names) {
      const auto* slot = layout_.packed.find(name);
      if (slot == nullptr || !memory_.packed.defined()) continue;
      result.push_back(ops::nf4_over(memory_.packed.narrow(0, slot->offset, slot->numel),
                                     slot->shape[0], slot->shape[1], layout_.nested));
    }
    return result;
  }

 private:
  std::pair<const Slot*, const Tensor*> find(const std::string& name) const {
    if (const auto* slot = layout_.trained.find(name)) return {slot, &memory_.trained};
    return {layout_.frozen.find(name), &memory_.frozen};
  }

  static Tensor view(const Tensor& flat, const Slot& slot, std::int64_t rows) {
    auto shape = slot.shape;
    const auto row = slot.numel / shape[0];
    shape[0] = rows;
    return flat.narrow(0, slot.offset, rows * row).view(shape);
  }

  const UnitLayout& layout_;
  const UnitMemory& memory_;
};

Linear linear(const Binder& binder, const std::string& prefix,
              const std::vector<LinearLayer>& joined) {
  const auto names = [&](const char* kind) {
    std::vector<std::string> result;
    for (const auto& layer : joined)
      result.push_back(fmt::format("{}{}.{}", prefix, layer.module, kind));
    return result;
  };
  Linear result;
  result.weight = binder.joined(names("weight"));
  result.packed = binder.packed(names("weight"));
  result.bias = binder.joined(names("bias"));
  std::vector<std::string> with_adapter;
  std::int64_t begin = 0;
  for (const auto& layer : joined) {
    const auto stem = fmt::format("{}{}", prefix, layer.module);
    if (auto a = binder.tensor(stem + ".lora_A.weight"); a.defined()) {
      result.adapters.push_back({a, binder.tensor(stem + ".lora_B.weight"), begin, layer.out});
      with_adapter.push_back(stem + ".lora_A.weight");
    }
    begin += layer.out;
  }
  if (!with_adapter.empty()) result.all_a = binder.joined(with_adapter);
  return result;
}

}  // namespace

Unit bind(const ModelConfig& config, const UnitLayout& layout, int unit, const UnitMemory& memory) {
  const Binder binder(layout, memory);
  Unit result;
  if (unit == kEmbeddingUnit) {
    result.embedding = binder.tensor("model.embed_tokens.weight");
  } else if (unit == end_unit(config)) {
    result.last_norm = binder.tensor("model.norm.weight");
    if (!config.tied) result.head = binder.tensor("lm_head.weight");
  } else {
    const auto prefix = block_prefix(unit - 1);
    auto& block = result.block;
    block.input_norm = binder.tensor(prefix + "input_layernorm.weight");
    block.post_norm = binder.tensor(prefix + "post_attention_layernorm.weight");
    block.q_norm = binder.tensor(prefix + "self_attn.q_norm.weight");
    block.k_norm = binder.tensor(prefix + "self_attn.k_norm.weight");
    block.qkv = linear(binder, prefix, linear_layers(config, Product::qkv));
    block.o = linear(binder, prefix, linear_layers(config, Product::o));
    block.gate_up = linear(binder, prefix, linear_layers(config, Product::gate_up));
    block.down = linear(binder, prefix, linear_layers(config, Product::down));
  }
  return result;
}

}  // namespace mgpu::model
