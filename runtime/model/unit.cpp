#include "runtime/model/unit.hpp"

#include <ATen/ops/_foreach_zero.h>
#include <fmt/format.h>

#include <algorithm>

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

  // Those of the named matrices that are quantized; empty for gradients.
  std::vector<PackedMatrix> packed(const std::vector<std::string>& names) const {
    std::vector<PackedMatrix> result;
    for (const auto& name : names) {
      const auto* slot = layout_.packed.find(name);
      if (slot == nullptr || !memory_.packed.defined()) continue;
      const auto bytes = memory_.packed.narrow(0, slot->offset, slot->numel);
      const auto rows = slot->shape[0], columns = slot->shape[1];
      if (layout_.format == MatrixFormat::int8)
        result.emplace_back(ops::int8_over(bytes, rows, columns));
      else if (layout_.format == MatrixFormat::fp8)
        result.emplace_back(ops::fp8_over(bytes, rows, columns));
      else
        result.emplace_back(ops::nf4_over(bytes, rows, columns, layout_.nested));
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
    if (auto a = binder.tensor(stem + kLoraA); a.defined()) {
      result.adapters.push_back(
          {a, binder.tensor(stem + kLoraB), binder.tensor(stem + kMagnitude), begin, layer.out});
      with_adapter.push_back(stem + kLoraA);
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
    block.gate_up.in_fp8 = block.down.in_fp8 = layout.mlp_in_fp8;
  }
  return result;
}

void begin_gradients(const ModelConfig& config, Unit& gradients, const Tensor& flat) {
  std::vector<Tensor> fresh;
  for (Linear* linear : gradients.block.linears()) {
    linear->fresh = linear->weight.defined();
    if (linear->fresh) fresh.push_back(linear->weight);
  }
  const Tensor& head = config.tied ? gradients.embedding : gradients.head;
  gradients.fresh_head = head.defined();
  if (gradients.fresh_head) fresh.push_back(head);
  const auto begin = flat.storage_offset();
  std::sort(fresh.begin(), fresh.end(), [](const Tensor& a, const Tensor& b) {
    return a.storage_offset() < b.storage_offset();
  });
  std::vector<Tensor> others;  // the gaps between them
  std::int64_t at = 0;
  const auto zero_to = [&](std::int64_t end) {
    if (end > at) others.push_back(flat.narrow(0, at, end - at));
  };
  for (const auto& matrix : fresh) {
    zero_to(matrix.storage_offset() - begin);
    at = matrix.storage_offset() - begin + matrix.numel();
  }
  zero_to(flat.numel());
  if (!others.empty()) at::_foreach_zero_(others);
}

void continue_gradients(Unit& gradients) {
  for (Linear* linear : gradients.block.linears()) linear->fresh = false;
  gradients.fresh_head = false;
}

}  // namespace mgpu::model
