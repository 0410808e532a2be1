// Attention over pages, sampling, and the log-probabilities of what was sampled.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>

#include "runtime/kernels/ops.hpp"
#include "runtime/kernels/paged.hpp"
#include "runtime/kernels/sampling.hpp"
#include "tests/gpu/kernel_checks.hpp"
#include "tests/gpu/kernel_times.hpp"

namespace mgpu::gpu_test {
namespace {

using at::Tensor;

void check_token_scores(std::int64_t rows, std::int64_t vocab, at::ScalarType type, double limit) {
  auto x = draw({rows, vocab}, type).mul_(3);
  auto targets = at::randint(vocab, {rows}, at::kInt);
  targets[rows / 2] = -100;
  auto wanted_x = reference(x);
  const ops::TokenSlopes slopes{at::randn({rows}), at::randn({rows})};
  const auto name = " [" + std::to_string(rows) + ", " + std::to_string(vocab) + "]";
  const auto got = ops::token_scores(x, targets.to(at::kCUDA), 0.7);
  const auto wanted = ops::token_scores(wanted_x, targets, 0.7);
  compare("token_scores log-probs" + name, got.log_probs, wanted.log_probs, 1e-5);
  compare("token_scores entropies" + name, got.entropies, wanted.entropies, 1e-4);
  ops::token_scores_backward_(x, targets.to(at::kCUDA), 0.7,
                              {slopes.log_probs.to(at::kCUDA), slopes.entropies.to(at::kCUDA)});
  ops::token_scores_backward_(wanted_x, targets, 0.7, slopes);
  // fp32 cannot give the entropy of so many tokens more precisely.
  compare("token_scores gradient" + name, x, wanted_x, std::max(limit, 1e-4));
}

void check_pages(std::int64_t sequences, const ops::HeadShape& shape, std::int64_t most,
                 at::ScalarType type, double limit) {
  const auto per_row = (most + ops::kPageTokens - 1) / ops::kPageTokens;
  const auto count = sequences * per_row + 1;
  const auto pages = [&] {
    return draw({count, ops::kPageTokens, shape.kv_heads, shape.head_dim}, type);
  };
  const ops::Pages on_gpu{pages(), pages()};
  const ops::Pages here{reference(on_gpu.keys), reference(on_gpu.values)};
  const auto table =
      at::randperm(count, at::kInt).narrow(0, 0, sequences * per_row).view({sequences, per_row});
  auto lengths = at::randint(1, most + 1, {sequences}, at::kInt);
  lengths[0] = 1;
  lengths[sequences - 1] = most;
  const auto qkv = draw({sequences, (shape.heads + 2 * shape.kv_heads) * shape.head_dim}, type);
  const auto width = shape.heads * shape.head_dim;
  auto got = at::empty({sequences, width}, qkv.options());
  ops::paged_attention(qkv, shape, on_gpu, table.to(at::kCUDA), lengths.to(at::kCUDA), got);
  auto wanted = at::empty({sequences, width}, here.keys.options());
  ops::paged_attention(reference(qkv), shape, here, table, lengths, wanted);
  compare("paged attention " + std::to_string(sequences) + " x " + std::to_string(most) + ", " +
              std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads) + " x " +
              std::to_string(shape.head_dim),
          got, wanted, limit);
}

ops::Draw drawn(const Tensor& logits, const ops::Sampling& sampling) {
  const auto rows = logits.size(0);
  const ops::Draw draw{at::arange(rows, at::kLong).mul_(7919).to(logits.device()),
                       at::full({rows}, 3, at::kInt).to(logits.device()),
                       at::zeros({rows}, logits.options().dtype(at::kInt)),
                       at::zeros({rows}, logits.options().dtype(at::kFloat))};
  ops::sample(logits, sampling, draw);
  return draw;
}

void check_draws(std::int64_t rows, std::int64_t vocab, at::ScalarType type,
                 const ops::Sampling& sampling, const std::string& name) {
  const auto logits = draw({rows, vocab}, type).mul_(3);
  const auto got = drawn(logits, sampling);
  const double temperature = sampling.temperature > 0 ? sampling.temperature : 1;
  const auto wanted = ops::token_scores(reference(logits), got.tokens.cpu(), temperature);
  compare("sampling " + name + " log-probs", got.log_probs, wanted.log_probs, 1e-4);
  if (sampling.temperature == 0)
    compare("sampling " + name, got.tokens, drawn(reference(logits), sampling).tokens, 1e-9);
}

// Compares how often each token is sampled with the sampler on the host.
void compare_frequencies(const ops::Sampling& sampling, const std::string& name) {
  constexpr std::int64_t kRows = 1 << 17, kVocab = 40;
  const auto logits = at::randn({1, kVocab}).expand({kRows, kVocab}).contiguous();
  const auto count = [&](const Tensor& x) {
    return at::bincount(drawn(x, sampling).tokens.cpu(), {}, kVocab).to(at::kFloat);
  };
  compare("sampling " + name + " frequencies", count(logits.to(at::kCUDA)), count(logits), .03);
}

}  // namespace

void check_paged_attention(at::ScalarType type, double limit) {
  check_pages(5, {12, 2, 128}, 700, type, limit);
  check_pages(64, {14, 2, 64}, 130, type, limit);
  check_pages(300, {8, 8, 128}, 50, type, limit);
}

void check_sampling(at::ScalarType type, double limit) {
  check_draws(64, 151936, type, {}, "plain");
  check_draws(64, 1003, type, {0}, "greedy");
  check_draws(64, 151936, type, {.7, 50, .9, .02}, "filtered");
  check_draws(33, 151936, type, {1, 0, .8}, "top_p");
  check_token_scores(17, 151936, type, limit);
  check_token_scores(9, 1003, type, limit);
}

void check_frequencies() {
  compare_frequencies({}, "plain");
  compare_frequencies({.7, 12, .9, .02}, "filtered");
  compare_frequencies({1.5, 0, .8}, "top_p");
}

}  // namespace mgpu::gpu_test
