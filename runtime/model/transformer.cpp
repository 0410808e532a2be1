#include "runtime/model/transformer.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "runtime/kernels/ops.hpp"
#include "runtime/model/rope.hpp"

namespace mgpu::model {
namespace {

Tensor to_host(const Tensor& x) {
  Tensor host = at::empty(x.sizes(), x.options().device(at::kCPU).pinned_memory(x.is_cuda()));
  return host.copy_(x, /*non_blocking=*/true);
}

// Gives a unit back when the scope ends.
class Borrowed {
 public:
  Borrowed(Keeper& keeper, int unit)
      : keeper_(keeper), unit_(unit), weights_(keeper.weights(unit)) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() { keeper_.release(unit_); }
  const Unit& operator*() const { return weights_; }
  const Unit* operator->() const { return &weights_; }

 private:
  Keeper& keeper_;
  int unit_;
  const Unit& weights_;
};

}  // namespace

Transformer::Transformer(ModelConfig config, TransformerOptions options)
    : config_(std::move(config)), options_(std::move(options)) {}

void Transformer::grow_tables(std::int64_t positions) {
  if (cos_.defined() && cos_.size(0) >= positions) return;
  auto frequencies = rope_frequencies(config_.rope, config_.head_dim);
  const auto f = at::from_blob(frequencies.data(), {static_cast<std::int64_t>(frequencies.size())},
                               at::kFloat);
  const auto angles = at::outer(at::arange(positions, at::kFloat), f);
  cos_ = at::cos(angles).to(options_.device);
  sin_ = at::sin(angles).to(options_.device);
}

Context Transformer::context_of(const DeviceBatch& batch, double dropout, std::uint64_t seed) {
  grow_tables(std::max<std::int64_t>(batch.sequences.longest, 64));
  Context context;
  context.config = &config_;
  context.positions = batch.positions;
  context.cos = cos_;
  context.sin = sin_;
  context.sequences = batch.sequences;
  context.adapter_scale = options_.adapter_scale;
  context.adapter_dropout = dropout;
  context.seed = seed;
  return context;
}

Keep Transformer::keep_of(std::int64_t layer) const {
  const auto index = static_cast<std::size_t>(layer);
  return index < options_.keep.size() ? options_.keep[index] : Keep::all;
}

Tensor Transformer::forward_blocks(const DeviceBatch& batch, const Context& context, Keeper& keeper,
                                   std::vector<Layer>* layers) {
  Tensor x;
  {
    const Borrowed first(keeper, kEmbeddingUnit);
    keeper.soon(block_unit(0));
    x = ops::embedding(first->embedding, batch.tokens);
  }
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const int unit = block_unit(layer);
    const Borrowed weights(keeper, unit);
    keeper.soon(unit + 1);
    BlockSaved saved;
    Tensor y = block_forward(x, weights->block, context, static_cast<int>(layer), saved);
    if (layers != nullptr) {
      const auto keep = keep_of(layer);
      Layer kept;
      kept.input = keep == Keep::on_host ? to_host(x) : x;
      if (keep == Keep::all) kept.saved = std::move(saved);
      layers->push_back(std::move(kept));
    }
    x = std::move(y);
  }
  return x;
}

Tensor Transformer::backward_blocks(Tensor g, const Context& context, Keeper& keeper,
                                    std::vector<Layer>& layers) {
  for (std::int64_t layer = config_.layers - 1; layer >= 0; --layer) {
    const int unit = block_unit(layer);
    const Borrowed weights(keeper, unit);
    if (layer > 0) keeper.soon(unit - 1);
    Layer kept = std::move(layers.back());
    layers.pop_back();
    if (keep_of(layer) == Keep::on_host) {
      kept.input = kept.input.to(options_.device, /*non_blocking=*/true);
    }
    if (keep_of(layer) != Keep::all) {
      block_forward(kept.input, weights->block, context, static_cast<int>(layer), kept.saved);
    }
    g = block_backward(g, kept.input, weights->block, keeper.gradients(unit).block, context,
                       static_cast<int>(layer), std::move(kept.saved));
    keeper.gradients_done(unit);
  }
  return g;
}

// The head and its loss, some rows at a time and forward and backward at once, so that the logits
// of all tokens never exist together. Rows without a label are left out.
Transformer::HeadResult Transformer::head(const Tensor& normed, const DeviceBatch& batch,
                                          const double* scale, const Tensor& weight,
                                          const Tensor& gradient) const {
  HeadResult result;
  const auto zero = [&] { return at::zeros({}, normed.options().dtype(at::kFloat)); };
  result.sums = {zero(), zero(), zero()};
  if (scale != nullptr) result.g_normed = at::zeros_like(normed);
  const auto rows = batch.labelled.size(0);
  for (std::int64_t begin = 0; begin < rows; begin += options_.head_rows) {
    const auto which = batch.labelled.narrow(0, begin, std::min(options_.head_rows, rows - begin));
    const Tensor h = normed.index_select(0, which);
    Tensor logits = at::mm(h, weight.t());
    const auto ce = ops::cross_entropy_(logits, batch.targets.index_select(0, which), scale);
    result.sums.loss.add_(ce.loss.sum());
    result.sums.correct.add_(ce.correct.sum());
    result.sums.entropy.add_(ce.entropy.sum());
    if (scale == nullptr) continue;
    if (gradient.defined()) ops::add_weight_gradient(logits, h, gradient);
    result.g_normed.index_copy_(0, which, at::mm(logits, weight));
  }
  return result;
}

LossSums Transformer::train(const DeviceBatch& batch, double scale, std::uint64_t seed,
                            Keeper& keeper) {
  const auto context = context_of(batch, options_.adapter_dropout, seed);
  const int last = end_unit(config_);
  std::vector<Layer> layers;
  Tensor x = forward_blocks(batch, context, keeper, &layers);
  LossSums sums;
  Tensor g;
  {
    const Borrowed end(keeper, last);
    keeper.soon(config_.tied ? kEmbeddingUnit : last - 1);
    auto [normed, rstd] = ops::rms_norm(x, end->last_norm, config_.norm_eps);
    HeadResult result;
    if (config_.tied) {
      const Borrowed first(keeper, kEmbeddingUnit);
      keeper.soon(last - 1);
      result =
          head(normed, batch, &scale, first->embedding, keeper.gradients(kEmbeddingUnit).embedding);
    } else {
      result = head(normed, batch, &scale, end->head, keeper.gradients(last).head);
    }
    sums = result.sums;
    g = ops::rms_norm_backward(result.g_normed, x, end->last_norm, rstd, {},
                               keeper.gradients(last).last_norm);
  }
  keeper.gradients_done(last);
  x = Tensor();
  g = backward_blocks(std::move(g), context, keeper, layers);
  if (const auto& gw = keeper.gradients(kEmbeddingUnit).embedding; gw.defined()) {
    ops::embedding_backward(g, batch.tokens, gw);
  }
  keeper.gradients_done(kEmbeddingUnit);
  return sums;
}

LossSums Transformer::evaluate(const DeviceBatch& batch, Keeper& keeper) {
  const auto context = context_of(batch, 0, 0);
  const Tensor x = forward_blocks(batch, context, keeper, nullptr);
  const Borrowed end(keeper, end_unit(config_));
  const auto normed = std::get<0>(ops::rms_norm(x, end->last_norm, config_.norm_eps));
  if (!config_.tied) return head(normed, batch, nullptr, end->head, {}).sums;
  const Borrowed first(keeper, kEmbeddingUnit);
  return head(normed, batch, nullptr, first->embedding, {}).sums;
}

Tensor Transformer::logits(const DeviceBatch& batch, Keeper& keeper) {
  const auto context = context_of(batch, 0, 0);
  const Tensor x = forward_blocks(batch, context, keeper, nullptr);
  const Borrowed end(keeper, end_unit(config_));
  const auto normed = std::get<0>(ops::rms_norm(x, end->last_norm, config_.norm_eps));
  if (!config_.tied) return at::mm(normed, end->head.t()).to(at::kFloat);
  const Borrowed first(keeper, kEmbeddingUnit);
  return at::mm(normed, first->embedding.t()).to(at::kFloat);
}

}  // namespace mgpu::model
