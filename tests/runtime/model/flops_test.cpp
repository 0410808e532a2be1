#include "runtime/model/flops.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::model;

namespace {

ModelConfig small(bool tied) {
  return {.vocab_size = 1000,
          .hidden_size = 64,
          .intermediate_size = 128,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 16,
          .tied = tied,
          .qkv_bias = true};
}

// q, k, v and o; gate, up and down.
constexpr double kLayer = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128;
constexpr double kHead = 1000 * 64;

}  // namespace

TEST_CASE("an untied embedding is looked up, not multiplied", "[flops]") {
  const auto untied = small(false), tied = small(true);
  CHECK(training_flops(untied, lay_out(untied)).per_token == 6 * (2 * kLayer + kHead));
  CHECK(training_flops(tied, lay_out(tied)).per_token == 6 * (2 * kLayer + kHead));
}

TEST_CASE("the gradients of frozen matrices are not counted, those of adapters are", "[flops]") {
  const auto config = small(false);
  const LoraShape lora{.rank = 8, .targets = {"q_proj", "down_proj"}, .whole = {}};
  const double adapters = 2 * 8 * ((64 + 64) + (128 + 64));
  CHECK(training_flops(config, lay_out(config, lora)).per_token ==
        4 * (2 * kLayer + kHead) + 6 * adapters);
  CHECK(training_flops(config, lay_out(config, lora, {.format = MatrixFormat::nf4})).per_token ==
        4 * (2 * kLayer + kHead) + 6 * adapters);
  CHECK(training_flops(config, lay_out(config, lora, {.format = MatrixFormat::int8})).per_token ==
        4 * (2 * kLayer + kHead) + 6 * adapters);
}

TEST_CASE("attention counts every pair of tokens that it compares", "[flops]") {
  const auto config = small(true);
  const auto flops = training_flops(config, lay_out(config));
  // Two products of width 16 in 4 heads and 2 layers, three times with backward.
  CHECK(flops.per_pair == 3 * 2 * 2 * 16 * 4 * 2);
  CHECK(flops.of(10, 55) == 10 * flops.per_token + 55 * flops.per_pair);
}
