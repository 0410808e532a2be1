#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// One tensor within a flat buffer. The name is the one Hugging Face uses.
struct Slot {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // in elements
  std::int64_t numel = 0;
  bool decay = false;  // weight decay applies: true for matrices, false for norms and biases
  double rate = 1;     // factor of the learning rate

  friend bool operator==(const Slot&, const Slot&) = default;
};

// The tensors of one flat buffer. Tensors that are multiplied together are neighbours, so that q, k
// and v form one matrix, and so do gate and up. Every such group starts at a multiple of kAlign.
struct FlatLayout {
  static constexpr std::int64_t kAlign = 64;  // elements

  std::vector<Slot> slots;
  std::int64_t size = 0;

  const Slot* find(const std::string& name) const;  // nullptr if this buffer has no such tensor
};

// How a matrix is stored. `plain`: as numbers of the type of the computation.
enum class MatrixFormat { plain, nf4, int8, fp8 };

// A unit is the part of the model that is gathered, recomputed and reduced as a whole: the
// embedding, each block, and the end unit (the last norm, and the head unless it is tied to the
// embedding).
struct UnitLayout {
  FlatLayout trained;
  FlatLayout frozen;
  FlatLayout packed;  // quantized frozen matrices; here offset, numel and size count bytes
  MatrixFormat format = MatrixFormat::nf4;  // of packed matrices
  bool nested = true;                       // the scales of 4-bit matrices are in 8 bits
  bool mlp_in_fp8 = false;                  // see Packing
};

// Which linear layers have adapters. Names are without the layer, for example "q_proj".
struct LoraShape {
  std::int64_t rank = 0;  // 0: no adapters
  std::set<std::string> targets;
  std::set<std::string> whole;  // modules that are fully trained beside the adapters
  bool dora = false;            // every adapter also has the lengths of the weight's rows
  double rate_ratio = 1;  // LoRA+: of the learning rates of B, and of these lengths, to that of A
};

// Which frozen linear layers of the blocks are stored quantized, and how.
struct Packing {
  MatrixFormat format = MatrixFormat::plain;
  bool nested = true;              // the scales of NF4 are quantized to 8 bits
  std::set<std::string> excepted;  // names of weights that stay unquantized
  // The layers of the MLP, which are trained, are multiplied in fp8. Their weights stay as they
  // are.
  bool mlp_in_fp8 = false;
};

struct ModelLayout {
  std::vector<UnitLayout> units;  // embedding, blocks, end

  std::int64_t trained() const;  // parameters without padding
  std::int64_t frozen() const;
};

// Throws if a layer cannot be stored as `packing` requires; the message names it.
ModelLayout lay_out(const ModelConfig& config, const LoraShape& lora = {},
                    const Packing& packing = {});

// How the names of an adapter's tensors end; before that they have the name of the linear layer.
// DoRA's magnitudes are the lengths of the rows of the weight.
inline constexpr const char* kLoraA = ".lora_A.weight";
inline constexpr const char* kLoraB = ".lora_B.weight";
inline constexpr const char* kMagnitude = ".lora_magnitude_vector";

inline constexpr int kEmbeddingUnit = 0;
inline int block_unit(std::int64_t layer) {
  return static_cast<int>(layer) + 1;
}
inline int end_unit(const ModelConfig& config) {
  return static_cast<int>(config.layers) + 1;
}

// The prefix of a block's tensor names, for example "model.layers.3.".
std::string block_prefix(std::int64_t layer);

}  // namespace mgpu::model
