#include "runtime/rl/reference.hpp"

#include "runtime/train/four_bit.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::rl {
namespace {

// Without its adapters the policy is what it was, unless it began with some or trains more.
bool needs_copy(const train::TrainConfig& config,
                const std::optional<train::AdapterSource>& adapter) {
  return !config.use_peft || adapter || !config.lora_modules_to_save.empty();
}

model::TransformerOptions without_adapters(model::TransformerOptions options, bool copy) {
  if (!copy) options.adapter_scale = 0;
  options.adapter_dropout = 0;
  return options;
}

}  // namespace

Reference::Reference(const train::TrainConfig& config, const train::ModelSource& source,
                     const std::optional<train::AdapterSource>& adapter,
                     const model::TransformerOptions& options, parallel::Shards& policy,
                     comm::Comm& comm)
    : keeper_(&policy),
      transformer_(source.config, without_adapters(options, needs_copy(config, adapter))) {
  if (!needs_copy(config, adapter)) return;
  parallel::ShardOptions shards;
  shards.zero_stage = comm.world() > 1 ? 3 : 0;
  shards.device = policy.device();
  shards.dtype = options.dtype;
  shards.trains = false;
  train::AdapterShape shape;
  if (adapter) shape = train::shape_of(*adapter, source.config);
  own_ = std::make_unique<parallel::Shards>(
      source.config,
      model::lay_out(source.config, shape.layers, train::four_bit_of(config, source)), shards,
      comm);
  if (source.weights) {
    train::load_weights(*own_, *source.weights, source.config, source.vocab_on_disk);
  } else {
    train::draw_weights(*own_, source.config.initializer_range, config.seed);
  }
  if (adapter) train::load_adapter(*own_, *adapter, source.config);
  keeper_ = own_.get();
}

at::Tensor Reference::log_probs(const model::DeviceBatch& batch, double temperature) {
  return transformer_.score(batch, temperature, *keeper_).log_probs;
}

}  // namespace mgpu::rl
