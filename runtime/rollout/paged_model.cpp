#include "runtime/rollout/paged_model.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "runtime/data/batch.hpp"
#include "runtime/kernels/low_rank.hpp"
#include "runtime/kernels/ops.hpp"
#include "runtime/rollout/to_tensor.hpp"
#include "runtime/train/to_device.hpp"

namespace mgpu::rollout {
namespace {

data::Batch batch_of_prompts(const std::vector<Prefill>& prompts) {
  data::BatchBuilder batch;
  for (const auto& prompt : prompts) batch.add({prompt.tokens});
  return batch.take();
}

std::vector<std::int64_t> slots_of(const std::vector<Prefill>& prompts) {
  std::vector<std::int64_t> slots;
  for (const auto& prompt : prompts)
    for (std::size_t i = 0; i < prompt.tokens.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      slots.push_back(prompt.pages[i / ops::kPageTokens] * ops::kPageTokens +
                      at % ops::kPageTokens);
    }
  return slots;
}

}  // namespace

GatheredWeights::GatheredWeights(const model::ModelConfig& config, model::WeightProvider& provider)
    : provider_(provider) {
  for (int unit = 0; unit <= model::end_unit(config); ++unit)
    units_.push_back(&provider_.weights(unit));
}

GatheredWeights::~GatheredWeights() {
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) provider_.release(unit);
}

std::int64_t PagedModel::page_bytes(const model::ModelConfig& config, at::ScalarType dtype) {
  return 2 * config.layers * ops::kPageTokens * config.kv_heads * config.head_dim *
         static_cast<std::int64_t>(c10::elementSize(dtype));
}

PagedModel::PagedModel(const model::ModelConfig& config, const ModelOptions& options,
                       model::WeightProvider& provider, std::int64_t pages, std::int64_t max_length)
    : config_(config), options_(options), weights_(config, provider) {
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    auto block = unit(model::block_unit(static_cast<int>(layer))).block;
    for (auto* linear : block.linears()) {
      if (!model::returns_parts(*linear, options.adapter_scale))
        linear->all_b = model::adapters_side_by_side(*linear);
      linear->factors = model::factors_of(*linear, options.adapter_scale);
    }
    blocks_.push_back(std::move(block));
  }
  const std::vector<std::int64_t> shape{config.layers, pages, ops::kPageTokens, config.kv_heads,
                                        config.head_dim};
  // Zeros: unwritten values may be read with weight 0, and NaN times 0 is NaN.
  keys_ = at::zeros(shape, at::TensorOptions(options.device).dtype(options.dtype));
  values_ = at::zeros(shape, keys_.options());
  rope_ = model::rope_table(config, max_length, options.device);
}

ops::Pages PagedModel::pages_of(std::int64_t layer) const {
  return {keys_.select(0, layer), values_.select(0, layer)};
}

Tensor PagedModel::prefill(const std::vector<Prefill>& prompts) {
  const auto host = batch_of_prompts(prompts);
  const auto batch = train::to_device(host, options_.device);
  const auto slots = to_tensor(slots_of(prompts), options_.device);
  model::Context context;
  context.config = &config_;
  context.positions = batch.positions;
  context.cos = rope_.cos;
  context.sin = rope_.sin;
  context.sequences = batch.sequences;
  ops::choose_attention(context.sequences, shape(), options_.device, options_.dtype);
  context.adapter_scale = options_.adapter_scale;
  Tensor x = ops::embedding(unit(model::kEmbeddingUnit).embedding, batch.tokens);
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    model::BlockSaved saved;
    x = model::block_forward(x, blocks_[static_cast<std::size_t>(layer)], context,
                             static_cast<int>(layer), saved);
    ops::put_in_pages(saved.qkv, shape(), slots, pages_of(layer));
  }
  std::vector<std::int32_t> last;
  for (std::size_t end = 1; end < host.starts.size(); ++end) last.push_back(host.starts[end] - 1);
  x = x.index_select(0, to_tensor(last, options_.device));
  return head(normed({x, {}}, unit(model::end_unit(config_)).last_norm).second);
}

struct PagedModel::StepPlaces {
  ops::Rotation rotation;
  Tensor table, slots, lengths;
};

Tensor PagedModel::step(const StepInput& input) {
  const auto pages = at::div(input.positions, ops::kPageTokens, "floor").to(at::kLong);
  const auto slots = at::gather(input.table, 1, pages.unsqueeze(1))
                         .squeeze(1)
                         .mul_(ops::kPageTokens)
                         .add_(at::remainder(input.positions, ops::kPageTokens))
                         .to(at::kLong);
  const StepPlaces places{
      {rope_.cos, rope_.sin, input.positions}, input.table, slots, at::add(input.positions, 1)};
  Residual residual{ops::embedding(unit(model::kEmbeddingUnit).embedding, input.tokens), {}};
  for (std::int64_t layer = 0; layer < config_.layers; ++layer)
    residual = block(residual, blocks_[static_cast<std::size_t>(layer)], layer, places);
  return head(normed(residual, unit(model::end_unit(config_)).last_norm).second);
}

std::pair<Tensor, Tensor> PagedModel::normed(const Residual& residual, const Tensor& norm) const {
  const auto& [x, mlp] = residual;
  if (!mlp.y.defined()) return {x, std::get<0>(ops::rms_norm(x, norm, config_.norm_eps))};
  auto [sum, y] = ops::add_rms_norm(mlp.y, mlp.added, x, norm, config_.norm_eps);
  return {sum, y};
}

PagedModel::Residual PagedModel::block(const Residual& residual, const model::Block& weights,
                                       std::int64_t layer, const StepPlaces& places) const {
  const auto& c = config_;
  const auto linear = [&](const Tensor& x, const model::Linear& layer_weights) {
    return model::linear_in_parts(x, layer_weights, options_.adapter_scale);
  };
  const auto [x, x_normed] = normed(residual, weights.input_norm);
  auto [qkv, qkv_added] = linear(x_normed, weights.qkv);
  const auto pages = pages_of(layer);
  if (c.qk_norm) {
    ops::add_low_rank_(qkv, qkv_added);
    const ops::HeadNorms norms{shape(), weights.q_norm, weights.k_norm, c.norm_eps};
    ops::norm_heads_(qkv, norms, places.rotation, nullptr);
    ops::put_in_pages(qkv, shape(), places.slots, pages);
  } else {
    ops::rotate_into_pages(qkv, qkv_added, shape(), places.rotation, places.slots, pages);
  }
  const Tensor seen = at::empty({x.size(0), c.heads * c.head_dim}, x.options());
  ops::paged_attention(qkv, shape(), pages, places.table, places.lengths, seen);
  const auto [middle, middle_normed] = normed({x, linear(seen, weights.o)}, weights.post_norm);
  const auto activated = model::gated(middle_normed, weights.gate_up, options_.adapter_scale);
  return {middle, linear(activated, weights.down)};
}

Tensor PagedModel::head(const Tensor& normed) const {
  const auto& end = unit(model::end_unit(config_));
  const auto& weight = config_.tied ? unit(model::kEmbeddingUnit).embedding : end.head;
  return options_.fp32_logits ? ops::product_in_fp32(normed, weight.t())
                              : at::mm(normed, weight.t());
}

void PagedModel::copy_pages(const std::vector<std::int32_t>& from,
                            const std::vector<std::int32_t>& to) {
  if (from.empty()) return;
  const auto source = to_tensor(from, options_.device);
  const auto target = to_tensor(to, options_.device).to(at::kLong);
  keys_.index_copy_(1, target, keys_.index_select(1, source));
  values_.index_copy_(1, target, values_.index_select(1, source));
}

}  // namespace mgpu::rollout
