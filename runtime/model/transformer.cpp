#include "runtime/model/transformer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "rendezvous/base/seeds.hpp"
#include "runtime/kernels/noise.hpp"
#include "runtime/kernels/ops.hpp"
#include "runtime/profiling/range.hpp"

namespace mgpu::model {
namespace {

constexpr std::uint64_t kNoiseStream = ~0ULL;  // no layer's dropout has this number

// Holds a unit's weights and releases them when the scope ends.
class ScopedUnit {
 public:
  ScopedUnit(WeightProvider& provider, int unit)
      : provider_(provider), unit_(unit), weights_(provider.weights(unit)) {}
  ScopedUnit(const ScopedUnit&) = delete;
  ScopedUnit& operator=(const ScopedUnit&) = delete;
  ~ScopedUnit() { provider_.release(unit_); }
  const Unit& operator*() const { return weights_; }
  const Unit* operator->() const { return &weights_; }

 private:
  WeightProvider& provider_;
  int unit_;
  const Unit& weights_;
};

// Computes the head for the target tokens only and for options.head_rows rows at a time, so that
// the logits of all tokens never exist together.
struct HeadRows {
  const Tensor& normed;
  const DeviceBatch& batch;
  const Tensor& weight;
  const TransformerOptions& options;
  bool fresh_gradient = false;  // the first piece overwrites the gradient of the weight

  struct Piece {
    std::int64_t begin;
    Tensor which;    // indices of its tokens in the batch
    Tensor h;        // its rows of `normed`
    Tensor targets;  // int32

    // Its part of a tensor over all target tokens.
    Tensor of(const Tensor& all) const { return all.narrow(0, begin, which.size(0)); }
  };

  Tensor logits_of(const Tensor& h) const {
    return options.fp32_logits ? ops::product_in_fp32(h, weight.t()) : ops::product(h, weight.t());
  }

  // Calls f(piece, logits) for each piece.
  template <class F>
  void for_each(F f) const {
    const auto rows = batch.target_rows.size(0), at_once = options.head_rows;
    for (std::int64_t begin = 0; begin < rows; begin += at_once) {
      const auto which = batch.target_rows.narrow(0, begin, std::min(at_once, rows - begin));
      const Piece piece{begin, which, normed.index_select(0, which),
                        batch.targets.index_select(0, which)};
      Tensor logits = logits_of(piece.h);
      f(piece, logits);
    }
  }

  // Given the gradient of a piece's logits, sets the gradient of its rows in `g` and adds the
  // gradient of the head's weight. The gradient of fp32 logits is rounded once, for the products
  // with rounded numbers, which are summed in fp32.
  void backward(const Piece& piece, const Tensor& g_logits, Tensor& g,
                const Tensor& weight_gradient) const {
    const Tensor rounded = g_logits.to(weight.scalar_type());
    if (weight_gradient.defined()) {
      ops::add_weight_gradient(rounded, piece.h, weight_gradient, 1,
                               fresh_gradient && piece.begin == 0);
    }
    g.index_copy_(0, piece.which, ops::product(rounded, weight));
  }
};

// The forward of the loss and, if `scale` is not null, its backward in the same pass.
LossSums sum_losses(const HeadRows& rows, const double* scale, Tensor g, const Tensor& gradient) {
  const auto zero = [&] { return at::zeros({}, rows.normed.options().dtype(at::kFloat)); };
  LossSums sums{zero(), zero(), zero()};
  rows.for_each([&](const HeadRows::Piece& piece, Tensor& logits) {
    const auto ce = ops::cross_entropy_(logits, piece.targets, scale);
    sums.loss.add_(ce.loss.sum());
    sums.correct.add_(ce.correct.sum());
    sums.entropy.add_(ce.entropy.sum());
    if (scale != nullptr) rows.backward(piece, logits, g, gradient);
  });
  return sums;
}

// Room for the scores of all target tokens.
class AllScores {
 public:
  explicit AllScores(const HeadRows& rows) : scores_{empty(rows), empty(rows)} {}

  void set(const HeadRows::Piece& piece, const ops::TokenScores& scores) {
    piece.of(scores_.log_probs).copy_(scores.log_probs);
    piece.of(scores_.entropies).copy_(scores.entropies);
  }
  const ops::TokenScores& get() const { return scores_; }

 private:
  static Tensor empty(const HeadRows& rows) {
    return at::empty({rows.batch.target_rows.size(0)}, rows.normed.options().dtype(at::kFloat));
  }

  ops::TokenScores scores_;
};

ops::TokenScores scores_of(const HeadRows& rows, double temperature) {
  AllScores all(rows);
  rows.for_each([&](const HeadRows::Piece& piece, const Tensor& logits) {
    all.set(piece, ops::token_scores(logits, piece.targets, temperature));
  });
  return all.get();
}

// The backward of the head with the slopes of all target tokens. Returns their scores.
ops::TokenScores apply(const ops::TokenSlopes& slopes, const HeadRows& rows, double temperature,
                       Tensor g, const Tensor& gradient) {
  AllScores all(rows);
  rows.for_each([&](const HeadRows::Piece& piece, Tensor& logits) {
    const ops::TokenSlopes own{piece.of(slopes.log_probs),
                               slopes.entropies.defined() ? piece.of(slopes.entropies) : Tensor()};
    all.set(piece, ops::token_scores_backward_(logits, piece.targets, temperature, own));
    rows.backward(piece, logits, g, gradient);
  });
  return all.get();
}

}  // namespace

Transformer::Transformer(ModelConfig config, TransformerOptions options)
    : config_(std::move(config)), options_(std::move(options)), host_copies_(options_.device) {}

void Transformer::grow_table(std::int64_t positions) {
  if (rope_.cos.defined() && rope_.cos.size(0) >= positions) return;
  rope_ = rope_table(config_, positions, options_.device);
}

Context Transformer::context_of(const DeviceBatch& batch, double dropout, std::uint64_t seed) {
  const auto& sequences = batch.sequences;
  grow_table(std::max<std::int64_t>(sequences.longest + sequences.beginnings.longest, 64));
  Context context;
  context.config = &config_;
  context.positions = batch.positions;
  context.cos = rope_.cos;
  context.sin = rope_.sin;
  context.sequences = batch.sequences;
  ops::choose_attention(context.sequences, head_shape(config_), options_.device, options_.dtype);
  context.adapter_scale = options_.adapter_scale;
  context.adapter_dropout = dropout;
  context.seed = seed;
  return context;
}

SavedActivations Transformer::saved_activations_of(std::int64_t layer) const {
  const auto index = static_cast<std::size_t>(layer);
  return index < options_.saved_activations.size() ? options_.saved_activations[index]
                                                   : SavedActivations::all;
}

Tensor Transformer::forward_blocks(const DeviceBatch& batch, const Context& context,
                                   WeightProvider& provider, std::vector<Layer>* layers) {
  const profiling::Range range("forward");
  Tensor x;
  {
    const ScopedUnit first(provider, kEmbeddingUnit);
    provider.prefetch(block_unit(0));
    x = ops::embedding(first->embedding, batch.tokens);
    if (context.embedding_noise > 0)
      ops::add_noise_(x, batch.sequences.starts, context.embedding_noise,
                      rendezvous::derive_seed(context.seed, kNoiseStream));
  }
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const int unit = block_unit(layer);
    const ScopedUnit weights(provider, unit);
    provider.prefetch(unit + 1);
    BlockSaved saved;
    Tensor y = block_forward(x, weights->block, context, static_cast<int>(layer), saved);
    if (layers != nullptr) {
      const auto saves = saved_activations_of(layer);
      Layer kept;
      kept.input = saves == SavedActivations::on_host ? host_copies_.to_host(x) : x;
      if (saves == SavedActivations::all) kept.saved = std::move(saved);
      layers->push_back(std::move(kept));
    }
    x = std::move(y);
  }
  return x;
}

Tensor Transformer::backward_blocks(Tensor g, const Context& context, WeightProvider& provider,
                                    std::vector<Layer>& layers) {
  const auto on_host = [&](std::int64_t layer) {
    return saved_activations_of(layer) == SavedActivations::on_host;
  };
  if (on_host(config_.layers - 1)) host_copies_.begin_return(layers.back().input);
  for (std::int64_t layer = config_.layers - 1; layer >= 0; --layer) {
    const int unit = block_unit(layer);
    const ScopedUnit weights(provider, unit);
    if (layer > 0) provider.prefetch(unit - 1);
    Layer kept = std::move(layers.back());
    layers.pop_back();
    if (on_host(layer)) kept.input = host_copies_.take();
    // The next one comes while this layer is computed.
    if (layer > 0 && on_host(layer - 1)) host_copies_.begin_return(layers.back().input);
    if (saved_activations_of(layer) != SavedActivations::all) {
      block_forward_again(kept.input, weights->block, context, static_cast<int>(layer), kept.saved);
    }
    g = block_backward(g, kept.input, weights->block, provider.gradients(unit).block, context,
                       static_cast<int>(layer), std::move(kept.saved));
    provider.gradients_done(unit);
  }
  return g;
}

template <class Head>
void Transformer::train_with(const DeviceBatch& batch, std::uint64_t seed, WeightProvider& provider,
                             Head head) {
  auto context = context_of(batch, options_.adapter_dropout, seed);
  context.embedding_noise = options_.embedding_noise;
  const int last = end_unit(config_);
  std::vector<Layer> layers;
  Tensor x = forward_blocks(batch, context, provider, &layers);
  Tensor g;
  {
    const profiling::Range range("head");
    const ScopedUnit end(provider, last);
    provider.prefetch(config_.tied ? kEmbeddingUnit : last - 1);
    auto [normed, rstd] = ops::rms_norm(x, end->last_norm, config_.norm_eps);
    Tensor g_normed;
    const auto train_head = [&](const Tensor& weight, const Unit& gradients,
                                const Tensor& gradient) {
      const bool fresh = gradients.fresh_head && gradient.defined();
      if (fresh && batch.target_rows.size(0) == 0) Tensor(gradient).zero_();  // no piece does it
      g_normed = head(HeadRows{normed, batch, weight, options_, fresh}, gradient);
    };
    if (config_.tied) {
      const ScopedUnit first(provider, kEmbeddingUnit);
      provider.prefetch(last - 1);
      const auto& gradients = provider.gradients(kEmbeddingUnit);
      train_head(first->embedding, gradients, gradients.embedding);
    } else {
      const auto& gradients = provider.gradients(last);
      train_head(end->head, gradients, gradients.head);
    }
    g = ops::rms_norm_backward(g_normed, x, end->last_norm, rstd, {},
                               provider.gradients(last).last_norm);
  }
  const profiling::Range range("backward");
  provider.gradients_done(last);
  x = Tensor();
  g = backward_blocks(std::move(g), context, provider, layers);
  if (const auto& gw = provider.gradients(kEmbeddingUnit).embedding; gw.defined()) {
    ops::embedding_backward(g, batch.tokens, gw);
  }
  provider.gradients_done(kEmbeddingUnit);
}

template <class Head>
auto Transformer::evaluate_with(const DeviceBatch& batch, WeightProvider& provider, Head head) {
  const auto context = context_of(batch, 0, 0);
  const Tensor x = forward_blocks(batch, context, provider, nullptr);
  const profiling::Range range("head");
  const ScopedUnit end(provider, end_unit(config_));
  const auto normed = std::get<0>(ops::rms_norm(x, end->last_norm, config_.norm_eps));
  if (!config_.tied) return head(HeadRows{normed, batch, end->head, options_});
  const ScopedUnit first(provider, kEmbeddingUnit);
  return head(HeadRows{normed, batch, first->embedding, options_});
}

LossSums Transformer::train(const DeviceBatch& batch, double scale, std::uint64_t seed,
                            WeightProvider& provider) {
  LossSums sums;
  train_with(batch, seed, provider, [&](const HeadRows& rows, const Tensor& gradient) {
    Tensor g = at::zeros_like(rows.normed);
    sums = sum_losses(rows, &scale, g, gradient);
    return g;
  });
  return sums;
}

LossSums Transformer::evaluate(const DeviceBatch& batch, WeightProvider& provider) {
  return evaluate_with(batch, provider,
                       [](const HeadRows& rows) { return sum_losses(rows, nullptr, {}, {}); });
}

ops::TokenScores Transformer::score(const DeviceBatch& batch, double temperature,
                                    WeightProvider& provider) {
  return evaluate_with(batch, provider,
                       [&](const HeadRows& rows) { return scores_of(rows, temperature); });
}

void Transformer::train(const DeviceBatch& batch, Objective& objective, double temperature,
                        std::uint64_t seed, WeightProvider& provider) {
  train_with(batch, seed, provider, [&](const HeadRows& rows, const Tensor& gradient) {
    Tensor g = at::zeros_like(rows.normed);
    if (const auto slopes = objective.slopes_without_scores()) {
      objective.slopes(apply(*slopes, rows, temperature, g, gradient));
    } else {
      apply(objective.slopes(scores_of(rows, temperature)), rows, temperature, g, gradient);
    }
    return g;
  });
}

Tensor Transformer::hidden(const DeviceBatch& batch, WeightProvider& provider) {
  return evaluate_with(batch, provider, [](const HeadRows& rows) {
    return rows.normed.index_select(0, rows.batch.target_rows);
  });
}

Tensor Transformer::logits(const DeviceBatch& batch, WeightProvider& provider) {
  return evaluate_with(batch, provider, [](const HeadRows& rows) {
    return rows.logits_of(rows.normed).to(at::kFloat);
  });
}

}  // namespace mgpu::model
