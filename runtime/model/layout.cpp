#include "runtime/model/layout.hpp"

#include <fmt/format.h>

#include <functional>
#include <numeric>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "runtime/kernels/fp8_layout.hpp"
#include "runtime/kernels/int8_layout.hpp"
#include "runtime/kernels/nf4_layout.hpp"
#include "runtime/model/linear_layers.hpp"

namespace mgpu::model {
namespace {

using Shape = std::vector<std::int64_t>;

// Fills one unit's layout. Groups of tensors are aligned, tensors within a group are not.
class UnitBuilder {
 public:
  UnitBuilder(UnitLayout& unit, const LoraShape& lora, const Packing& packing)
      : unit_(unit), lora_(lora), packing_(packing) {
    unit_.format = packing.format;
    unit_.nested = packing.nested;
    unit_.mlp_in_fp8 = packing.mlp_in_fp8;
  }

  // `module` is the name without the layer prefix; it decides whether the tensor is trained.
  void add(const std::string& prefix, std::string_view module, const std::string& kind, Shape shape,
           bool decay) {
    place(is_trained(module) ? unit_.trained : unit_.frozen,
          Slot{fmt::format("{}{}.{}", prefix, module, kind), std::move(shape), 0, 0, decay});
  }

  // Joined layers are multiplied as one matrix, so either all or none of them may be quantized.
  void require_same_precision(const std::string& prefix,
                              const std::vector<LinearLayer>& joined) const {
    const auto excepted = [&](const LinearLayer& layer) {
      return packing_.excepted.contains(fmt::format("{}{}.weight", prefix, layer.module));
    };
    for (const auto& layer : joined) {
      if (excepted(layer) == excepted(joined.front())) continue;
      throw rendezvous::InputError(
          fmt::format("{0}{1} and {0}{2} must both be in 4 bits or both not: "
                      "mixing them is not supported",
                      prefix, joined.front().module, layer.module));
    }
  }

  // The weight of a linear layer.
  void matrix(const std::string& prefix, std::string_view module, Shape shape) {
    auto name = fmt::format("{}{}.weight", prefix, module);
    if (packing_.format == MatrixFormat::plain || is_trained(module) ||
        packing_.excepted.contains(name)) {
      add(prefix, module, "weight", std::move(shape), true);
      return;
    }
    const auto bytes = packed_bytes(name, shape[0], shape[1]);
    unit_.packed.slots.push_back({std::move(name), std::move(shape), unit_.packed.size, bytes});
    unit_.packed.size += bytes;
  }

  // A part of a layer's adapter, such as ".lora_A.weight", if it has one.
  void adapter(const std::string& prefix, const LinearLayer& layer, const char* part, Shape shape,
               double rate) {
    if (!has_adapter(layer)) return;
    place(unit_.trained, Slot{fmt::format("{}{}{}", prefix, layer.module, part), std::move(shape),
                              0, 0, true, rate});
  }

  void end_group() {
    for (FlatLayout* flat : {&unit_.trained, &unit_.frozen})
      flat->size = (flat->size + FlatLayout::kAlign - 1) / FlatLayout::kAlign * FlatLayout::kAlign;
  }

 private:
  std::int64_t packed_bytes(const std::string& name, std::int64_t rows,
                            std::int64_t columns) const {
    if (packing_.format == MatrixFormat::int8) return ops::int8_layout(rows, columns).bytes;
    if (packing_.format == MatrixFormat::fp8) return ops::fp8_layout(rows, columns).bytes;
    return nf4_bytes(name, rows * columns);
  }

  std::int64_t nf4_bytes(const std::string& name, std::int64_t elements) const {
    if (elements % ops::kNf4Block == 0) return ops::nf4_layout(elements, packing_.nested).bytes;
    throw rendezvous::InputError(
        fmt::format("{} has {} elements, which is not a multiple of {}, so it cannot be stored in "
                    "4 bits; use load_in_8bit instead of load_in_4bit",
                    name, elements, ops::kNf4Block));
  }

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
  const Packing& packing_;
};

// Joined linear layers: weights together, then biases, then adapters.
void add_linear(UnitBuilder& builder, const std::string& prefix,
                const std::vector<LinearLayer>& joined, const LoraShape& lora) {
  builder.require_same_precision(prefix, joined);
  for (const auto& layer : joined) builder.matrix(prefix, layer.module, {layer.out, layer.in});
  builder.end_group();
  for (const auto& layer : joined)
    if (layer.bias) builder.add(prefix, layer.module, "bias", {layer.out}, false);
  builder.end_group();
  for (const auto& layer : joined) builder.adapter(prefix, layer, kLoraA, {lora.rank, layer.in}, 1);
  builder.end_group();
  for (const auto& layer : joined) {
    builder.adapter(prefix, layer, kLoraB, {layer.out, lora.rank}, lora.rate_ratio);
    builder.end_group();
  }
  if (!lora.dora) return;
  for (const auto& layer : joined) {
    builder.adapter(prefix, layer, kMagnitude, {layer.out}, lora.rate_ratio);
    builder.end_group();
  }
}

void add_norm(UnitBuilder& builder, const std::string& prefix, const char* module,
              std::int64_t width) {
  builder.add(prefix, module, "weight", {width}, false);
  builder.end_group();
}

UnitLayout block(const ModelConfig& c, std::int64_t layer, const LoraShape& lora,
                 const Packing& packing) {
  UnitLayout unit;
  UnitBuilder builder(unit, lora, packing);
  const auto prefix = block_prefix(layer);
  const auto add = [&](Product product) {
    add_linear(builder, prefix, linear_layers(c, product), lora);
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

ModelLayout lay_out(const ModelConfig& config, const LoraShape& lora, const Packing& packing) {
  ModelLayout layout;
  UnitLayout embedding;
  UnitBuilder first(embedding, lora, packing);
  first.add("model.", "embed_tokens", "weight", {config.vocab_size, config.hidden_size}, true);
  first.end_group();
  layout.units.push_back(std::move(embedding));
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    layout.units.push_back(block(config, layer, lora, packing));
  UnitLayout end;
  UnitBuilder last(end, lora, packing);
  add_norm(last, "model.", "norm", config.hidden_size);
  if (!config.tied) {
    last.add("", "lm_head", "weight", {config.vocab_size, config.hidden_size}, true);
    last.end_group();
  }
  layout.units.push_back(std::move(end));
  return layout;
}

}  // namespace mgpu::model
