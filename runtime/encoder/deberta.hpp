#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/encoder/deberta_config.hpp"

namespace mgpu::encoder {

// The token ids of a text with the type of each.
struct TypedTokens {
  std::vector<std::int32_t> ids, types;
};

// A DeBERTa-v2 or -v3 classifier with one label that is only evaluated. It computes in fp32,
// without dropout, and gives the logits of transformers' DebertaV2ForSequenceClassification.
class Deberta {
 public:
  // Returns a tensor of the files; throws if it is missing or has another shape.
  using TensorSource = std::function<at::Tensor(const checkpoint::TensorShape&)>;
  Deberta(const DebertaConfig& config, const TensorSource& source, at::Device device);

  // One logit per text. The texts are padded to the longest of them, which does not change their
  // logits. Each has at least one token and at most config.longest; the types are below
  // config.token_types if there are any.
  std::vector<float> logits(std::span<const TypedTokens* const> texts) const;

 private:
  struct Linear {
    at::Tensor weight, bias;
    at::Tensor operator()(const at::Tensor& input) const;
  };
  struct Norm {
    at::Tensor weight, bias;
  };
  struct Layer {
    Linear query, key, value, pos_key, pos_query, attention_out, up, down;
    Norm attention_norm, out_norm;
  };
  // What all layers use of a batch.
  struct Masks {
    at::Tensor content;    // (B, 1, 1, T): false for padding
    at::Tensor distances;  // (T, T): the row of the position embeddings
    at::Tensor positions;  // (2 * span, width)
  };

  at::Tensor embed(std::span<const TypedTokens* const> texts, std::int64_t length,
                   const at::Tensor& present) const;
  at::Tensor distance_rows(std::int64_t length) const;
  at::Tensor attend(const Layer& layer, const at::Tensor& hidden, const Masks& masks) const;
  at::Tensor position_scores(const Layer& layer, const at::Tensor& query, const at::Tensor& key,
                             const Masks& masks) const;
  at::Tensor forward(const Layer& layer, const at::Tensor& hidden, const Masks& masks) const;
  at::Tensor normed(const at::Tensor& input, const Norm& norm) const;
  at::Tensor by_head(const at::Tensor& input) const;
  double scale() const;

  DebertaConfig config_;
  at::Device device_;
  at::Tensor words_, positions_, types_, projection_, relative_;
  Norm embedding_norm_, relative_norm_;
  std::vector<Layer> layers_;
  Linear pooler_, classifier_;
};

}  // namespace mgpu::encoder
