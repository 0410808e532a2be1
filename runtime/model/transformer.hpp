#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/kernels/ops.hpp"
#include "runtime/model/block.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/unit.hpp"

namespace mgpu::model {

// One micro-batch on the device.
struct DeviceBatch {
  Tensor tokens;     // int32 [tokens]
  Tensor positions;  // int32 [tokens]
  Tensor targets;    // int32 [tokens]; data::kNoTarget where there is none
  Tensor labelled;   // int64: which tokens have a target
  ops::Sequences sequences;
};

// What a block's forward leaves for its backward.
enum class Keep {
  all,      // every intermediate result
  input,    // its input; the rest is computed again
  on_host,  // its input, in pinned host memory
};

struct TransformerOptions {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
  std::vector<Keep> keep;         // per layer; shorter: Keep::all for the rest
  std::int64_t head_rows = 4096;  // rows of logits that exist at a time
  double adapter_scale = 1;
  double adapter_dropout = 0;
};

// Sums over the labels of a micro-batch, on the device.
struct LossSums {
  Tensor loss;     // fp32
  Tensor correct;  // fp32
  Tensor entropy;  // fp32
};

// A loss over the labelled tokens of a micro-batch, in terms of their scores.
class Objective {
 public:
  virtual ~Objective() = default;
  virtual ops::TokenSlopes slopes(const ops::TokenScores& scores) = 0;
};

// A decoder-only transformer: arithmetic only. It holds no weights and knows no ranks; a Keeper
// hands it the weights of one unit at a time and takes their gradients.
class Transformer {
 public:
  Transformer(ModelConfig config, TransformerOptions options);

  // Forward and backward of one micro-batch: adds scale * d(sum of losses) to the gradients.
  LossSums train(const DeviceBatch& batch, double scale, std::uint64_t seed, Keeper& keeper);

  LossSums evaluate(const DeviceBatch& batch, Keeper& keeper);

  // Scores of the labelled tokens, in order.
  ops::TokenScores score(const DeviceBatch& batch, double temperature, Keeper& keeper);

  // Forward and backward for any loss of those scores. The head is computed twice: a loss may need
  // all scores before the first gradient.
  void train(const DeviceBatch& batch, Objective& objective, double temperature, std::uint64_t seed,
             Keeper& keeper);

  // The last norm's output at the labelled tokens, [labelled, hidden]: what a head of another kind
  // reads.
  Tensor hidden(const DeviceBatch& batch, Keeper& keeper);

  // [tokens, vocab] of all tokens, in fp32: for small tests.
  Tensor logits(const DeviceBatch& batch, Keeper& keeper);

  const ModelConfig& config() const { return config_; }
  const TransformerOptions& options() const { return options_; }
  void set_keep(std::vector<Keep> keep) { options_.keep = std::move(keep); }

 private:
  struct Layer {
    Tensor input;  // on the host with Keep::on_host
    BlockSaved saved;
  };

  Context context_of(const DeviceBatch& batch, double dropout, std::uint64_t seed);
  Keep keep_of(std::int64_t layer) const;
  Tensor forward_blocks(const DeviceBatch& batch, const Context& context, Keeper& keeper,
                        std::vector<Layer>* layers);
  Tensor backward_blocks(Tensor g, const Context& context, Keeper& keeper,
                         std::vector<Layer>& layers);
  template <class Head>
  void train_with(const DeviceBatch& batch, std::uint64_t seed, Keeper& keeper, Head head);
  template <class Head>
  auto evaluate_with(const DeviceBatch& batch, Keeper& keeper, Head head);
  void grow_tables(std::int64_t positions);

  ModelConfig config_;
  TransformerOptions options_;
  Tensor cos_, sin_;
};

}  // namespace mgpu::model
