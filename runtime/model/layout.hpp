#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// One tensor within a flat buffer, under its Hugging Face name.
struct Slot {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // in elements
  std::int64_t numel = 0;
  bool decay = false;  // matrices decay, norms and biases do not

  friend bool operator==(const Slot&, const Slot&) = default;
};

// Tensors that lie in one flat buffer. What is multiplied together lies together, so that q, k and
// v are one matrix, and so are gate and up; every such group starts at a multiple of kAlign.
struct FlatLayout {
  static constexpr std::int64_t kAlign = 64;  // elements

  std::vector<Slot> slots;
  std::int64_t size = 0;

  const Slot* find(const std::string& name) const;  // nullptr if it is not here
};

// What is gathered, recomputed and reduced as one: the embedding, each block, and the end (the last
// norm, and the head unless it is the embedding).
struct UnitLayout {
  FlatLayout trained;
  FlatLayout frozen;
  FlatLayout packed;   // frozen matrices in 4 bits; offset, numel and size count bytes
  bool nested = true;  // how those are packed
};

// Which linear layers have adapters; their names without a layer, for example "q_proj".
struct LoraShape {
  std::int64_t rank = 0;  // 0: no adapters
  std::set<std::string> targets;
  std::set<std::string> whole;  // modules that are trained as a whole beside the adapters
};

// Which frozen linear layers of the blocks are kept in NF4.
struct FourBit {
  bool on = false;
  bool nested = true;              // their scales are in 8 bits
  std::set<std::string> excepted;  // weights that are not
};

struct ModelLayout {
  std::vector<UnitLayout> units;  // embedding, blocks, end

  std::int64_t trained() const;  // parameters without padding
  std::int64_t frozen() const;
};

// Throws naming a layer that cannot be kept in 4 bits.
ModelLayout lay_out(const ModelConfig& config, const LoraShape& lora = {},
                    const FourBit& four_bit = {});

inline constexpr int kEmbeddingUnit = 0;
inline int block_unit(std::int64_t layer) {
  return static_cast<int>(layer) + 1;
}
inline int end_unit(const ModelConfig& config) {
  return static_cast<int>(config.layers) + 1;
}

// "model.layers.3." and the like.
std::string block_prefix(std::int64_t layer);

}  // namespace mgpu::model
