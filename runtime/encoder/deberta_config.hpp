#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/weights.hpp"

namespace mgpu::encoder {

// The value of model_type in config.json.
inline constexpr std::string_view kDebertaType = "deberta-v2";

enum class Activation { gelu, gelu_tanh, relu, silu, tanh };

// A sequence classifier of DeBERTa's second and third version, which share a model_type.
struct DebertaConfig {
  std::int64_t vocab_size = 0, embedding_size = 0, hidden_size = 0, intermediate_size = 0;
  std::int64_t layers = 0, heads = 0;
  std::int64_t longest = 0;          // max_position_embeddings
  std::int64_t token_types = 0;      // 0: none
  bool adds_positions = false;       // position_biased_input: to the embedding
  bool relative = false;             // relative_attention
  std::int64_t farthest = 0;         // max_relative_positions: farther tokens count as so far
  std::int64_t buckets = 0;          // position_buckets; 0: every distance has its own embedding
  bool content_to_position = false;  // c2p of pos_att_type
  bool position_to_content = false;  // p2c
  bool shares_projections = false;   // share_att_key: positions use those of the content
  bool norms_positions = false;      // norm_rel_ebd: layer_norm
  double norm_epsilon = 0;
  Activation activation = Activation::gelu, pooler_activation = Activation::gelu;

  // Distances are from -span to span - 1.
  std::int64_t span() const { return buckets > 0 ? buckets : farthest; }
  std::int64_t head_size() const { return hidden_size / heads; }
};

// Reads config.json. Throws if something is not supported; the message names it.
DebertaConfig read_deberta_config(std::string_view text, const std::string& file);

// Whether a config.json is of this model type. Throws if it is not JSON.
bool is_deberta(std::string_view text, const std::string& file);

// The tensors that a classifier with one label consists of, with transformers' names.
std::vector<checkpoint::TensorShape> deberta_tensors(const DebertaConfig& config);

// The classifier computes in fp32.
std::int64_t deberta_weight_bytes(const DebertaConfig& config);
// What a forward pass needs in addition, if its texts have so many tokens with padding.
std::int64_t deberta_forward_bytes(const DebertaConfig& config, std::int64_t tokens);

}  // namespace mgpu::encoder
