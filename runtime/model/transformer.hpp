#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/kernels/host_copies.hpp"
#include "runtime/kernels/ops.hpp"
#include "runtime/model/block.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/rope_table.hpp"
#include "runtime/model/unit.hpp"

namespace mgpu::model {

// One micro-batch on the device.
struct DeviceBatch {
  Tensor tokens;       // int32 [tokens]
  Tensor positions;    // int32 [tokens]
  Tensor targets;      // int32 [tokens]; data::kNoTarget where there is none
  Tensor target_rows;  // int64: the indices of the tokens that have a target
  ops::Sequences sequences;
};

// What a block's forward saves for its backward.
enum class SavedActivations {
  all,      // every intermediate result
  input,    // its input; the rest is recomputed
  on_host,  // its input, in pinned host memory
};

struct TransformerOptions {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
  std::vector<SavedActivations> saved_activations;  // per layer; `all` for layers past its end
  std::int64_t head_rows = kHeadRows;               // rows of logits computed at a time
  bool fp32_logits = false;                         // are not rounded to `dtype`
  double adapter_scale = 1;
  double adapter_dropout = 0;
  double embedding_noise = 0;  // NEFTune's alpha, in training; 0: none
};

// Sums over the target tokens of a micro-batch, on the device.
struct LossSums {
  Tensor loss;     // fp32
  Tensor correct;  // fp32
  Tensor entropy;  // fp32
};

// A loss over the target tokens of a micro-batch as a function of their scores (log-probability and
// entropy). slopes() returns its derivatives with respect to the scores.
class Objective {
 public:
  virtual ~Objective() = default;
  virtual ops::TokenSlopes slopes(const ops::TokenScores& scores) = 0;
  // The same derivatives before the scores are known, if they do not depend on them.
  virtual std::optional<ops::TokenSlopes> slopes_without_scores() { return {}; }
};

// A decoder-only transformer: arithmetic only. It holds no weights and does not depend on ranks: a
// WeightProvider gives it the weights of one unit at a time and receives the gradients.
class Transformer {
 public:
  Transformer(ModelConfig config, TransformerOptions options);

  // Forward and backward of one micro-batch: adds the gradient of scale * (sum of losses) to the
  // provider's gradients. `seed` determines dropout and noise. Returns the sums without the scale.
  LossSums train(const DeviceBatch& batch, double scale, std::uint64_t seed,
                 WeightProvider& provider);

  // Forward only, without dropout.
  LossSums evaluate(const DeviceBatch& batch, WeightProvider& provider);

  // The scores of the target tokens, in order.
  ops::TokenScores score(const DeviceBatch& batch, double temperature, WeightProvider& provider);

  // Forward and backward for any loss of these scores. Computes the head twice if the loss needs
  // all scores before it can give the first gradient.
  void train(const DeviceBatch& batch, Objective& objective, double temperature, std::uint64_t seed,
             WeightProvider& provider);

  // The last norm's output for the target tokens, [target tokens, hidden]: the input of another
  // kind of head, such as a reward model's.
  Tensor hidden(const DeviceBatch& batch, WeightProvider& provider);

  // The logits of all tokens, [tokens, vocab], in fp32. For small tests.
  Tensor logits(const DeviceBatch& batch, WeightProvider& provider);

  const ModelConfig& config() const { return config_; }
  const TransformerOptions& options() const { return options_; }
  void set_saved_activations(std::vector<SavedActivations> keep) {
    options_.saved_activations = std::move(keep);
  }

 private:
  struct Layer {
    Tensor input;  // on the host with SavedActivations::on_host
    BlockSaved saved;
  };

  Context context_of(const DeviceBatch& batch, double dropout, std::uint64_t seed);
  SavedActivations saved_activations_of(std::int64_t layer) const;
  Tensor forward_blocks(const DeviceBatch& batch, const Context& context, WeightProvider& provider,
                        std::vector<Layer>* layers);
  Tensor backward_blocks(Tensor g, const Context& context, WeightProvider& provider,
                         std::vector<Layer>& layers);
  template <class Head>
  void train_with(const DeviceBatch& batch, std::uint64_t seed, WeightProvider& provider,
                  Head head);
  template <class Head>
  auto evaluate_with(const DeviceBatch& batch, WeightProvider& provider, Head head);
  void grow_table(std::int64_t positions);

  ModelConfig config_;
  TransformerOptions options_;
  RopeTable rope_;
  ops::HostCopies host_copies_;
};

}  // namespace mgpu::model
