#include "runtime/encoder/deberta.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

namespace mgpu::encoder {
namespace {

at::Tensor activated(const at::Tensor& input, Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return at::gelu(input);
    case Activation::gelu_tanh:
      return at::gelu(input, "tanh");
    case Activation::relu:
      return at::relu(input);
    case Activation::silu:
      return at::silu(input);
    case Activation::tanh:
      return at::tanh(input);
  }
  return input;
}

// The bucket of each distance: near distances have their own, farther ones share buckets whose
// sizes grow logarithmically up to `farthest`. Rounds exactly as transformers does.
at::Tensor buckets_of(const at::Tensor& distances, std::int64_t buckets, std::int64_t farthest) {
  const auto middle = buckets / 2;
  const auto size =
      at::where((distances < middle).logical_and(distances > -middle),
                at::scalar_tensor(middle - 1, distances.options()), at::abs(distances));
  const auto last = at::log(at::scalar_tensor(
      static_cast<double>(farthest - 1) / static_cast<double>(middle), at::kFloat));
  const auto steps = at::log(size / middle) / last * (middle - 1);
  const auto far = (at::ceil(steps) + middle) * at::sign(distances);
  return at::where(size <= middle, distances.to(at::kFloat), far).to(at::kLong);
}

}  // namespace

at::Tensor Deberta::Linear::operator()(const at::Tensor& input) const {
  return at::linear(input, weight, bias);
}

Deberta::Deberta(const DebertaConfig& config, const TensorSource& source, at::Device device)
    : config_(config), device_(device) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& shape : deberta_tensors(config))
    tensors.emplace(shape.name, source(shape).to(device, at::kFloat, false, true));  // a copy
  const auto take = [&](const std::string& name) {
    const auto found = tensors.find(name);
    return found == tensors.end() ? at::Tensor() : found->second;
  };
  const auto linear = [&](const std::string& name) {
    return Linear{take(name + ".weight"), take(name + ".bias")};
  };
  const auto norm = [&](const std::string& name) {
    return Norm{take(name + ".weight"), take(name + ".bias")};
  };
  words_ = take("deberta.embeddings.word_embeddings.weight");
  positions_ = take("deberta.embeddings.position_embeddings.weight");
  types_ = take("deberta.embeddings.token_type_embeddings.weight");
  projection_ = take("deberta.embeddings.embed_proj.weight");
  embedding_norm_ = norm("deberta.embeddings.LayerNorm");
  relative_ = take("deberta.encoder.rel_embeddings.weight");
  relative_norm_ = norm("deberta.encoder.LayerNorm");
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const auto layer = fmt::format("deberta.encoder.layer.{}.", i);
    const auto self = layer + "attention.self.";
    Layer next{.query = linear(self + "query_proj"),
               .key = linear(self + "key_proj"),
               .value = linear(self + "value_proj"),
               .pos_key = linear(self + "pos_key_proj"),
               .pos_query = linear(self + "pos_query_proj"),
               .attention_out = linear(layer + "attention.output.dense"),
               .up = linear(layer + "intermediate.dense"),
               .down = linear(layer + "output.dense"),
               .attention_norm = norm(layer + "attention.output.LayerNorm"),
               .out_norm = norm(layer + "output.LayerNorm")};
    if (config.shares_projections) {
      next.pos_key = next.key;
      next.pos_query = next.query;
    }
    layers_.push_back(std::move(next));
  }
  pooler_ = linear("pooler.dense");
  classifier_ = linear("classifier");
}

at::Tensor Deberta::normed(const at::Tensor& input, const Norm& norm) const {
  return at::layer_norm(input, {config_.hidden_size}, norm.weight, norm.bias, config_.norm_epsilon);
}

// (..., T, width) -> (..., heads, T, head size)
at::Tensor Deberta::by_head(const at::Tensor& input) const {
  return input.unflatten(-1, {config_.heads, config_.head_size()}).transpose(-2, -3);
}

// Each kind of attention adds to the variance of the scores.
double Deberta::scale() const {
  const int kinds =
      1 + (config_.content_to_position ? 1 : 0) + (config_.position_to_content ? 1 : 0);
  return std::sqrt(static_cast<float>(config_.head_size() * kinds));
}

at::Tensor Deberta::embed(std::span<const TypedTokens* const> texts, std::int64_t length,
                          const at::Tensor& present) const {
  const auto count = static_cast<std::int64_t>(texts.size());
  auto ids = at::zeros({count, length}, at::kLong);
  auto kinds = at::zeros({count, length}, at::kLong);
  for (std::int64_t row = 0; row < count; ++row) {
    const auto& text = *texts[static_cast<std::size_t>(row)];
    std::copy(text.ids.begin(), text.ids.end(), ids.data_ptr<std::int64_t>() + row * length);
    std::copy(text.types.begin(), text.types.end(), kinds.data_ptr<std::int64_t>() + row * length);
  }
  auto hidden = at::embedding(words_, ids.to(device_));
  if (positions_.defined()) hidden = hidden + positions_.narrow(0, 0, length);
  if (types_.defined()) hidden = hidden + at::embedding(types_, kinds.to(device_));
  if (projection_.defined()) hidden = at::linear(hidden, projection_);
  return normed(hidden, embedding_norm_) * present.unsqueeze(-1).to(at::kFloat);
}

// (T, T): for each query and key, the row of the position embeddings.
at::Tensor Deberta::distance_rows(std::int64_t length) const {
  auto distances = at::arange(-(length - 1), length, at::kLong);
  if (config_.buckets > 0) distances = buckets_of(distances, config_.buckets, config_.farthest);
  const auto span = config_.span();
  const auto rows = at::clamp(distances + span, 0, 2 * span - 1);
  const auto tokens = at::arange(length, at::kLong);
  const auto index = tokens.unsqueeze(1) - tokens.unsqueeze(0) + (length - 1);
  return rows.index_select(0, index.flatten()).view({length, length}).to(device_);
}

// What the distances of tokens add to the attention scores: (B, heads, T, T).
at::Tensor Deberta::position_scores(const Layer& layer, const at::Tensor& query,
                                    const at::Tensor& key, const Masks& masks) const {
  const auto rows = masks.distances.expand(
      {query.size(0), query.size(1), masks.distances.size(0), masks.distances.size(1)});
  at::Tensor scores;
  if (config_.content_to_position) {
    const auto positions = by_head(layer.pos_key(masks.positions));  // (heads, 2 * span, size)
    scores = at::gather(at::matmul(query, positions.transpose(-1, -2)), -1, rows) / scale();
  }
  if (config_.position_to_content) {
    const auto positions = by_head(layer.pos_query(masks.positions));
    // Row k, column q has the distance from q to k.
    const auto found =
        at::gather(at::matmul(key, positions.transpose(-1, -2)), -1, rows.transpose(-1, -2));
    const auto turned = found.transpose(-1, -2) / scale();
    scores = scores.defined() ? scores + turned : turned;
  }
  return scores;
}

at::Tensor Deberta::attend(const Layer& layer, const at::Tensor& hidden, const Masks& masks) const {
  const auto query = by_head(layer.query(hidden));
  const auto key = by_head(layer.key(hidden));
  auto scores = at::matmul(query, key.transpose(-1, -2) / scale());  // (B, heads, T, T)
  if (masks.positions.defined() && (config_.content_to_position || config_.position_to_content))
    scores = scores + position_scores(layer, query, key, masks);
  scores.masked_fill_(masks.content.logical_not(), std::numeric_limits<float>::lowest());
  const auto mixed = at::matmul(at::softmax(scores, -1), by_head(layer.value(hidden)));
  return layer.attention_out(mixed.transpose(-2, -3).flatten(-2));
}

at::Tensor Deberta::forward(const Layer& layer, const at::Tensor& hidden,
                            const Masks& masks) const {
  const auto attended = normed(attend(layer, hidden, masks) + hidden, layer.attention_norm);
  const auto wide = activated(layer.up(attended), config_.activation);
  return normed(layer.down(wide) + attended, layer.out_norm);
}

std::vector<float> Deberta::logits(std::span<const TypedTokens* const> texts) const {
  const c10::OptionalDeviceGuard guard(device_);
  std::size_t length = 0;
  for (const auto* text : texts) length = std::max(length, text->ids.size());
  const auto columns = static_cast<std::int64_t>(length);
  auto present = at::zeros({static_cast<std::int64_t>(texts.size()), columns}, at::kBool);
  for (std::size_t row = 0; row < texts.size(); ++row)
    present[static_cast<std::int64_t>(row)]
        .narrow(0, 0, static_cast<std::int64_t>(texts[row]->ids.size()))
        .fill_(true);
  present = present.to(device_);
  Masks masks{.content = present.unsqueeze(1).unsqueeze(1), .distances = {}, .positions = {}};
  if (relative_.defined()) {
    masks.distances = distance_rows(columns);
    masks.positions = config_.norms_positions ? normed(relative_, relative_norm_) : relative_;
  }
  auto hidden = embed(texts, columns, present);  // (B, T, width)
  for (const auto& layer : layers_) hidden = forward(layer, hidden, masks);
  const auto pooled = activated(pooler_(hidden.select(1, 0)), config_.pooler_activation);
  const auto scores = classifier_(pooled).flatten().cpu().contiguous();
  const auto* const first = scores.const_data_ptr<float>();
  return {first, first + scores.numel()};
}

}  // namespace mgpu::encoder
