#include "runtime/rollout/decoder.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <stdexcept>

#include "runtime/data/batch.hpp"
#include "runtime/kernels/ops.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/train/to_device.hpp"

namespace mgpu::rollout {
namespace {

Tensor ints(const std::vector<std::int32_t>& values, at::Device device) {
  return at::from_blob(const_cast<std::int32_t*>(values.data()),
                       {static_cast<std::int64_t>(values.size())}, at::kInt)
      .clone()
      .to(device);
}

data::Batch lay_end_to_end(const std::vector<std::vector<std::int32_t>>& prompts) {
  data::Batch batch;
  for (const auto& prompt : prompts) {
    batch.starts.push_back(static_cast<std::int32_t>(batch.tokens.size()));
    batch.longest = std::max(batch.longest, static_cast<std::int32_t>(prompt.size()));
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      batch.tokens.push_back(prompt[i]);
      batch.positions.push_back(static_cast<std::int32_t>(i));
      batch.targets.push_back(data::kNoLabel);
    }
  }
  batch.starts.push_back(static_cast<std::int32_t>(batch.tokens.size()));
  return batch;
}

}  // namespace

Decoder::Decoder(const model::ModelConfig& config, const Options& options, model::Keeper& keeper,
                 std::int64_t sequences, std::int64_t room)
    : config_(config), options_(options), keeper_(keeper), sequences_(sequences), room_(room) {
  const auto where = at::TensorOptions(options_.device).dtype(options_.dtype);
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    keys_.push_back(at::zeros({sequences, room, config_.kv_heads, config_.head_dim}, where));
    values_.push_back(at::zeros({sequences, room, config_.kv_heads, config_.head_dim}, where));
  }
  auto frequencies = model::rope_frequencies(config_.rope, config_.head_dim);
  const auto angles =
      at::outer(at::arange(room, at::kFloat),
                at::from_blob(frequencies.data(), {static_cast<std::int64_t>(frequencies.size())},
                              at::kFloat));
  cos_ = at::cos(angles).to(options_.device);
  sin_ = at::sin(angles).to(options_.device);
}

Tensor Decoder::read(const std::vector<std::vector<std::int32_t>>& prompts) {
  const auto batch = train::to_device(lay_end_to_end(prompts), options_.device);
  model::Context context;
  context.config = &config_;
  context.positions = batch.positions;
  context.cos = cos_;
  context.sin = sin_;
  context.sequences = batch.sequences;
  context.adapter_scale = options_.adapter_scale;
  Tensor x = ops::embedding(keeper_.weights(model::kEmbeddingUnit).embedding, batch.tokens);
  keeper_.release(model::kEmbeddingUnit);
  const auto q = config_.heads * config_.head_dim;
  const auto kv = config_.kv_heads * config_.head_dim;
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const int unit = model::block_unit(layer);
    model::BlockSaved saved;
    x = model::block_forward(x, keeper_.weights(unit).block, context, static_cast<int>(layer),
                             saved);
    keeper_.release(unit);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const auto length = static_cast<std::int64_t>(prompts[i].size());
      const auto rows = saved.qkv.narrow(0, at, length);
      const auto index = static_cast<std::size_t>(layer);
      const auto shape = std::vector<std::int64_t>{length, config_.kv_heads, config_.head_dim};
      keys_[index][static_cast<std::int64_t>(i)]
          .narrow(0, 0, length)
          .copy_(rows.narrow(1, q, kv).reshape(shape));
      values_[index][static_cast<std::int64_t>(i)]
          .narrow(0, 0, length)
          .copy_(rows.narrow(1, q + kv, kv).reshape(shape));
      at += length;
    }
  }
  std::vector<std::int32_t> last;
  lengths_.clear();
  for (const auto& prompt : prompts) {
    last.push_back((last.empty() ? -1 : last.back()) + static_cast<std::int32_t>(prompt.size()));
    lengths_.push_back(static_cast<std::int64_t>(prompt.size()));
  }
  return head(x.index_select(0, ints(last, options_.device)));
}

Tensor Decoder::read(const std::vector<std::int32_t>& tokens) {
  std::vector<std::int32_t> places;
  for (const auto length : lengths_) {
    if (length >= room_) throw std::logic_error("a sequence has no room for another token");
    places.push_back(static_cast<std::int32_t>(length));
  }
  const auto positions = ints(places, options_.device);
  Tensor x = ops::embedding(keeper_.weights(model::kEmbeddingUnit).embedding,
                            ints(tokens, options_.device));
  keeper_.release(model::kEmbeddingUnit);
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const int unit = model::block_unit(layer);
    x = block(x, keeper_.weights(unit).block, static_cast<int>(layer), positions);
    keeper_.release(unit);
  }
  for (auto& length : lengths_) ++length;
  return head(x);
}

Tensor Decoder::block(const Tensor& x, const model::Block& weights, int layer,
                      const Tensor& positions) {
  const auto& c = config_;
  model::LinearSaved unused;
  const model::AdapterUse use{options_.adapter_scale, 0, 0};
  const auto normed = std::get<0>(ops::rms_norm(x, weights.input_norm, c.norm_eps));
  Tensor qkv = model::linear(normed, weights.qkv, use, unused);
  if (c.qk_norm) model::norm_heads(qkv, weights, c, nullptr);
  ops::rotate_(qkv, c.heads + c.kv_heads, c.head_dim, cos_, sin_, positions, false);
  const Tensor o = model::linear(attend(qkv, layer), weights.o, use, unused);
  const auto [middle, post_normed, rstd] = ops::add_rms_norm(o, x, weights.post_norm, c.norm_eps);
  const Tensor gate_up = model::linear(post_normed, weights.gate_up, use, unused);
  return at::add(model::linear(ops::swiglu(gate_up), weights.down, use, unused), middle);
}

Tensor Decoder::attend(const Tensor& qkv, int layer) {
  const auto& c = config_;
  const auto index = static_cast<std::size_t>(layer);
  const auto rows = qkv.view({sequences_, c.heads + 2 * c.kv_heads, c.head_dim});
  for (std::int64_t i = 0; i < sequences_; ++i) {
    const auto at = lengths_[static_cast<std::size_t>(i)];
    keys_[index][i][at].copy_(rows[i].narrow(0, c.heads, c.kv_heads));
    values_[index][i][at].copy_(rows[i].narrow(0, c.heads + c.kv_heads, c.kv_heads));
  }
  const auto longest = *std::max_element(lengths_.begin(), lengths_.end()) + 1;
  const auto seen = at::from_blob(lengths_.data(), {sequences_, 1}, at::kLong).add(1);
  const auto mask = at::lt(at::arange(longest, at::kLong).unsqueeze(0), seen)
                        .view({sequences_, 1, 1, longest})
                        .to(options_.device);
  const auto out = at::scaled_dot_product_attention(
      rows.narrow(1, 0, c.heads).unsqueeze(2), keys_[index].narrow(1, 0, longest).transpose(1, 2),
      values_[index].narrow(1, 0, longest).transpose(1, 2), mask, 0.0, false, {},
      /*enable_gqa=*/true);
  return out.reshape({sequences_, c.heads * c.head_dim});
}

Tensor Decoder::head(const Tensor& x) {
  const int last = model::end_unit(config_);
  const auto& end = keeper_.weights(last);
  const auto normed = std::get<0>(ops::rms_norm(x, end.last_norm, config_.norm_eps));
  Tensor logits;
  if (config_.tied) {
    logits = at::mm(normed, keeper_.weights(model::kEmbeddingUnit).embedding.t());
    keeper_.release(model::kEmbeddingUnit);
  } else {
    logits = at::mm(normed, end.head.t());
  }
  keeper_.release(last);
  return logits.to(at::kFloat);
}

}  // namespace mgpu::rollout
