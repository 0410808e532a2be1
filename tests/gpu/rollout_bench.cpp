// Times rollouts on random prompts and weights of known shapes, without files: whole calls to the
// engine, and the parts of a step.
//   rollout_bench SHAPE [key=value ...]   shape: 0.5B 1.5B 3B 7B tiny
//   rows=64 prompt=256 new=256 lora=0 rounds=3 group=1 sequences=0 pages=0 mean=0
// rows: completions. sequences: at a time, at most (0: all). pages: of the KV cache (0: enough for
// all). mean: about the mean length of completions, drawn from about equal probabilities (0: all
// have the maximum, and the pieces of a step are timed).
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "runtime/comm/comm.hpp"
#include "runtime/kernels/low_rank.hpp"
#include "runtime/kernels/low_rank_on_gpu.hpp"
#include "runtime/kernels/ops.hpp"
#include "runtime/kernels/recording.hpp"
#include "runtime/model/block.hpp"
#include "runtime/rollout/engine.hpp"
#include "runtime/train/device.hpp"
#include "tests/gpu/shapes.hpp"

namespace {

using namespace mgpu;
using at::Tensor;
using Options = std::map<std::string, std::string>;

constexpr double kScale = 2;  // of the adapters

// Times the parts of one step, each over all layers.
class Pieces {
 public:
  Pieces(const model::ModelConfig& config, const rollout::GatheredWeights& weights,
         at::Device device, at::ScalarType dtype, std::int64_t rows, std::int64_t length)
      : c_(config), weights_(weights), store_(device), device_(device) {
    const auto floats = at::TensorOptions(device).dtype(dtype);
    const auto ints = floats.dtype(at::kInt);
    const auto random = [&](std::vector<std::int64_t> size) {
      return at::randn(size, floats).mul_(.1);
    };
    x_ = random({rows, c_.hidden_size});
    qkv_ = random({rows, (c_.heads + 2 * c_.kv_heads) * c_.head_dim});
    seen_ = random({rows, c_.heads * c_.head_dim});
    gate_up_ = random({rows, 2 * c_.intermediate_size});
    act_ = random({rows, c_.intermediate_size});
    const auto width = length / ops::kPageTokens + 1;
    keys_ = at::zeros({c_.layers, rows * width + 1, ops::kPageTokens, c_.kv_heads, c_.head_dim},
                      floats);
    values_ = at::zeros(keys_.sizes(), floats);
    table_ = at::arange(1, rows * width + 1, ints).view({rows, width});
    lengths_ = at::full({rows}, length, ints);
    positions_ = at::full({rows}, length - 1, ints);
    slots_ = table_.select(1, (length - 1) / ops::kPageTokens)
                 .mul(ops::kPageTokens)
                 .add((length - 1) % ops::kPageTokens)
                 .to(at::kLong);
    cos_ = at::randn({length, c_.head_dim / 2}, floats.dtype(at::kFloat));
    sin_ = at::randn({length, c_.head_dim / 2}, floats.dtype(at::kFloat));
    logits_ = random({rows, c_.vocab_size});
    draw_ = {at::arange(rows, floats.dtype(at::kLong)), at::zeros({rows}, ints),
             at::zeros({rows}, ints), at::empty({rows}, floats.dtype(at::kFloat))};
  }

  void print() {
    // As in the engine.
    std::vector<model::Block> blocks;
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) {
      auto block = weights_.unit(model::block_unit(static_cast<int>(layer))).block;
      for (auto* linear : block.linears()) linear->all_b = model::adapters_side_by_side(*linear);
      blocks.push_back(block);
    }
    const ops::HeadShape heads{c_.heads, c_.kv_heads, c_.head_dim};
    model::LinearSaved unused;
    const auto layers = [&](const char* name, auto piece) {
      time(name, [&, piece] {
        for (std::int64_t layer = 0; layer < c_.layers; ++layer)
          piece(blocks[static_cast<std::size_t>(layer)], layer);
      });
    };
    using Block = model::Block;
    // What the layers' adapters add to outputs.
    struct Added {
      ops::LowRank qkv, o, gate_up, down;
    };
    std::vector<Added> added;
    const auto linear = [](const Tensor& x, const model::Linear& layer, double scale = kScale) {
      return model::linear_in_parts(x, layer, scale);
    };
    for (const auto& b : blocks)
      added.push_back({linear(x_, b.qkv).added, linear(seen_, b.o).added,
                       linear(x_, b.gate_up).added, linear(act_, b.down).added});
    const auto of = [&](std::int64_t layer) { return added[static_cast<std::size_t>(layer)]; };
    const ops::Rotation rotation{cos_, sin_, positions_};
    layers("add, norm", [&](const Block& b, auto layer) {
      ops::add_rms_norm(x_, of(layer).down, x_, b.input_norm, c_.norm_eps);
    });
    layers("qkv", [&](const Block& b, auto) { linear(x_, b.qkv); });
    layers("rotate into pages", [&](const Block&, auto layer) {
      ops::rotate_into_pages(qkv_, of(layer).qkv, heads, rotation, slots_,
                             {keys_.select(0, layer), values_.select(0, layer)});
    });
    layers("attention", [&](const Block&, auto layer) {
      ops::paged_attention(qkv_, heads, {keys_.select(0, layer), values_.select(0, layer)}, table_,
                           lengths_, seen_);
    });
    layers("o", [&](const Block& b, auto) { linear(seen_, b.o); });
    layers("add, norm", [&](const Block& b, auto layer) {
      ops::add_rms_norm(x_, of(layer).o, x_, b.post_norm, c_.norm_eps);
    });
    layers("gate, up, swiglu", [&](const Block& b, auto) { model::gated(x_, b.gate_up, kScale); });
    layers("down", [&](const Block& b, auto) { linear(act_, b.down); });
    const auto& head = c_.tied ? weights_.unit(model::kEmbeddingUnit).embedding
                               : weights_.unit(model::end_unit(c_)).head;
    time("head", [&] { at::mm(x_, head.t()); });
    time("sample", [&] { ops::sample(logits_, {}, draw_); });
    printf("  %-24s %8.1f us\n", "sum", total_);
    printf("  for comparison:\n");
    layers("gate, up", [&](const Block& b, auto) { linear(x_, b.gate_up); });
    layers("swiglu", [&](const Block&, auto layer) { ops::swiglu(gate_up_, of(layer).gate_up); });
    time("sample, top_p .9", [&] { ops::sample(logits_, {.top_p = .9}, draw_); });
    if (blocks.front().qkv.adapters.empty()) return;
    // All four linear layers: as above, only a x one after the other, and as the trainer does.
    const auto four = [&](const char* name, auto piece) {
      layers(name, [&, piece](const Block& b, auto) {
        piece(x_, b.qkv);
        piece(seen_, b.o);
        piece(x_, b.gate_up);
        piece(act_, b.down);
      });
    };
    layers("qkv, no adapters", [&](const Block& b, auto) { linear(x_, b.qkv, 0); });
    layers("o, no adapters", [&](const Block& b, auto) { linear(seen_, b.o, 0); });
    layers("gate, up, no adapters", [&](const Block& b, auto) { linear(x_, b.gate_up, 0); });
    layers("down, no adapters", [&](const Block& b, auto) { linear(act_, b.down, 0); });
    four("linears", [&](const Tensor& x, const model::Linear& layer) { linear(x, layer); });
    four("a x alone", [&](const Tensor& x, const model::Linear& layer) {
      if (ops::on_gpu::can_low_rank_product(x, layer.all_a))
        ops::on_gpu::LowRankProduct(x, layer.all_a).take();
    });
    four("linears of the trainer", [&](const Tensor& x, const model::Linear& layer) {
      model::linear(x, layer, {kScale, 0, 0}, unused);
    });
  }

 private:
  void time(const char* name, const std::function<void()>& work) {
    constexpr int kRuns = 20;
    ops::Recording piece(store_, work);
    piece.run();
    train::wait_for(device_);
    const double start = bench::seconds();
    for (int i = 0; i < kRuns; ++i) piece.run();
    train::wait_for(device_);
    const double us = (bench::seconds() - start) * 1e6 / kRuns;
    printf("  %-24s %8.1f us\n", name, us);
    total_ += us;
  }

  const model::ModelConfig& c_;
  const rollout::GatheredWeights& weights_;
  ops::Recording::Store store_;
  at::Device device_;
  Tensor x_, qkv_, seen_, gate_up_, act_, keys_, values_, table_, lengths_, positions_, slots_,
      cos_, sin_, logits_;
  ops::Draw draw_;
  double total_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options o{{"rows", "64"}, {"prompt", "256"},  {"new", "256"}, {"lora", "0"}, {"rounds", "3"},
            {"group", "1"}, {"sequences", "0"}, {"pages", "0"}, {"mean", "0"}, {"overlap", "1"}};
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    o[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  const auto number = [&](const char* key) { return std::stol(o.at(key)); };
  const bool gpu = train::visible_gpus() > 0;
  const auto device = train::take_device(0, gpu);
  const auto dtype = gpu ? at::kBFloat16 : at::kFloat;
  const auto comm = comm::join({}, {});
  const auto config = bench::shape(argv[1]);
  const auto lora = bench::lora_of_rank(number("lora"));
  parallel::ShardOptions shard_options;
  shard_options.device = device;
  shard_options.dtype = dtype;
  shard_options.trains = false;
  parallel::Shards shards(config, model::lay_out(config, lora), shard_options, *comm);
  bench::fill(shards, device);

  const auto rows = number("rows"), group = number("group");
  std::vector<rollout::Request> requests;
  for (long i = 0; i < rows / group; ++i) {
    rollout::Request request;
    for (long t = 0; t < number("prompt"); ++t)
      request.tokens.push_back(static_cast<int>((i * 7919 + t * 104729) % config.vocab_size));
    for (long g = 0; g < group; ++g)
      request.seeds.push_back(static_cast<std::uint64_t>(i * group + g));
    requests.push_back(request);
  }
  rollout::GenerationSettings settings;
  settings.max_tokens = number("new");
  if (number("mean") > 0) {
    settings.sampling.temperature = 20;
    const auto stops = std::max<std::int64_t>(1, config.vocab_size / number("mean"));
    for (std::int64_t token = 0; token < stops; ++token)
      settings.stop_tokens.push_back(static_cast<std::int32_t>(token));
  }
  const auto length = number("prompt") + number("new");
  const auto sequences = number("sequences") > 0 ? number("sequences") : rows;
  printf("%s rows %ld group %ld prompt %ld new %ld lora %ld\n", argv[1], rows, group,
         number("prompt"), number("new"), number("lora"));
  for (long round = 0; round < number("rounds"); ++round) {
    const double start = bench::seconds();
    rollout::Engine engine(config,
                           {.model = {device, dtype, kScale},
                            .sequences = sequences,
                            .longest = length,
                            .pages = number("pages"),
                            .burst = gpu ? 8 : 1,
                            .overlap = number("overlap") != 0},
                           shards);
    engine.generate(requests, settings);
    const auto& n = engine.counts();
    printf(
        "  round %ld: %.3f s; read %ld tokens in %.3f s, generated %ld in %.3f s (%ld steps): "
        "%.0f/s; "
        "%.2f GiB reserved\n",
        round, bench::seconds() - start, n.prompt_tokens, n.prefill_seconds, n.tokens,
        n.decode_seconds, n.steps, static_cast<double>(n.tokens) / n.decode_seconds,
        static_cast<double>(train::device_memory(device).reserved) / (1 << 30));
    const auto mean = [](std::int64_t of, std::int64_t steps) {
      return static_cast<double>(of) / static_cast<double>(std::max<std::int64_t>(1, steps));
    };
    printf(
        "           %.1f sequences at a time, %.1f while others wait; %.2f %% of the tokens "
        "computed again\n",
        mean(n.rows, n.steps), mean(n.rows_while_waiting, n.steps_while_waiting),
        100. * static_cast<double>(n.computed_again) /
            static_cast<double>(n.tokens + n.prompt_tokens));
  }
  if (number("mean") > 0) {
    comm->close();
    return 0;
  }
  const rollout::GatheredWeights weights(config, shards);
  Pieces(config, weights, device, dtype, rows, number("prompt") + number("new") / 2).print();
  comm->close();
  return 0;
}
