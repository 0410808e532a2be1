#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mgpu::model {

enum class Family { llama, mistral, qwen2, qwen3 };

// Rows of logits that the head computes at a time.
inline constexpr std::int64_t kHeadRows = 4096;

// How the rotary embedding turns positions into angles. `plain` uses theta alone; the others scale
// the frequencies to reach longer contexts.
struct Rope {
  enum class Kind { plain, linear, llama3 };
  Kind kind = Kind::plain;
  double theta = 10000;
  double factor = 1;                       // linear, llama3
  double low_freq_factor = 1;              // llama3
  double high_freq_factor = 4;             // llama3
  std::int64_t original_max_position = 0;  // llama3

  friend bool operator==(const Rope&, const Rope&) = default;
};

// A decoder-only transformer as config.json describes it, in the format of transformers 4 or 5.
struct ModelConfig {
  Family family = Family::qwen2;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position = 0;
  std::int64_t sliding_window = 0;  // latest tokens that attention sees; 0: all
  double norm_eps = 1e-6;
  Rope rope;
  bool tied = false;      // the head shares the embedding's weights
  bool qkv_bias = false;  // on q, k and v
  bool o_bias = false;    // on the attention's output
  bool mlp_bias = false;
  bool qk_norm = false;            // RMSNorm of every head of q and k before the rotation
  std::string dtype = "bfloat16";  // of the weights on disk
  bool nf4 = false;                // linear layers are stored in 4 bits, in bitsandbytes' layout
  double initializer_range = 0.02;
  std::optional<std::int32_t> bos_token_id, pad_token_id;
  std::vector<std::int32_t> eos_token_ids;

  // Tokens of the longest sequence that this program computes as the model specifies: a window has
  // no effect on sequences that fit into it, and longer ones are not supported.
  std::int64_t longest_sequence() const {
    return sliding_window > 0 && (max_position == 0 || sliding_window < max_position)
               ? sliding_window
               : max_position;
  }

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

}  // namespace mgpu::model
