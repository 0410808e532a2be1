#include <ATen/ops/empty.h>
#include <ATen/ops/index_fill.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "runtime/kernels/ops.hpp"
#include "runtime/rollout/engine_work.hpp"
#include "runtime/rollout/to_tensor.hpp"

// The parts of the engine that compute: first tokens, and bursts of steps.
namespace mgpu::rollout {

// The first tokens of the sequences from slot `first` on, out of their prompts' logits.
void Engine::draw_first(Work& work, std::size_t first) {
  std::vector<Tensor> rows;
  std::vector<std::int64_t> seeds;
  std::vector<std::int32_t> from, to;
  for (auto slot = first; slot < work.running.size(); ++slot) {
    const auto& sequence = work.running[slot];
    auto& group = work.groups.at(sequence.prompt);
    rows.push_back(group.logits);
    seeds.push_back(static_cast<std::int64_t>(sequence.seed));
    const auto& tokens = work.prompts[sequence.prompt].tokens;
    if (tokens.size() % ops::kPageTokens != 0) {
      from.push_back(group.pages.back());
      to.push_back(sequence.pages[tokens.size() / ops::kPageTokens]);
    }
    --group.to_start;
  }
  model_.copy_pages(from, to);
  const auto count = static_cast<std::int64_t>(rows.size());
  const auto device = options_.model.device;
  const auto where = at::TensorOptions(device);
  const ops::Draw first_draw{to_tensor(seeds, device), at::zeros({count}, where.dtype(at::kInt)),
                             at::empty({count}, where.dtype(at::kInt)),
                             at::empty({count}, where.dtype(at::kFloat))};
  draw(work, at::stack(rows), seen(work, first), first_draw);
  std::erase_if(work.groups, [&](const auto& item) {
    if (item.second.to_start > 0) return false;
    for (const auto page : item.second.pages) pool_.give(page);
    return true;
  });
  const auto tokens = first_draw.tokens.cpu(), log_probs = first_draw.log_probs.cpu();
  for (auto i = count - 1; i >= 0; --i) {
    const auto slot = first + static_cast<std::size_t>(i);
    if (take(work, work.running[slot], tokens.const_data_ptr<std::int32_t>()[i],
             log_probs.const_data_ptr<float>()[i]))
      finish(work, slot);
  }
}

// Which tokens each sequence from slot `first` on has read or made, bool [sequences, vocab];
// undefined if nobody asks.
Tensor Engine::seen(const Work& work, std::size_t first) const {
  if (work.wanted.repetition_penalty == 1) return {};
  const auto count = static_cast<std::int64_t>(work.running.size() - first);
  std::vector<std::int64_t> places;
  for (auto slot = first; slot < work.running.size(); ++slot) {
    const auto row = static_cast<std::int64_t>(slot - first) * config_.vocab_size;
    for (const auto* tokens : {&work.running[slot].read, &work.running[slot].made.tokens})
      for (const auto token : *tokens) places.push_back(row + token);
  }
  const auto device = options_.model.device;
  auto mask = at::zeros({count * config_.vocab_size}, at::TensorOptions(device).dtype(at::kBool));
  mask.index_fill_(0, to_tensor(places, device), 1);
  return mask.view({count, config_.vocab_size});
}

// The log-probabilities stay those of the model, whatever shaped the draw.
void Engine::draw(const Work& work, const Tensor& logits, const Tensor& seen,
                  const ops::Draw& draw) const {
  const auto& sampling = work.wanted.sampling;
  if (!seen.defined()) return ops::sample(logits, sampling, draw);
  const double penalty = work.wanted.repetition_penalty;
  const auto shaped = at::where(logits.gt(0), logits.div(penalty), logits.mul(penalty));
  ops::sample(at::where(seen, shaped, logits), sampling, draw);
  const double temperature = sampling.temperature > 0 ? sampling.temperature : 1;
  draw.log_probs.copy_(ops::token_scores(logits, draw.tokens, temperature).log_probs);
}

void Engine::run_burst(Work& work) {
  const auto count = work.running.size();
  const auto rows = static_cast<std::int64_t>(count);
  std::size_t most_pages = 0;
  for (const auto& sequence : work.running)
    most_pages = std::max(most_pages, sequence.pages.size());
  std::vector<std::int32_t> tokens, positions, counters, table(count * most_pages, 0);
  std::vector<std::int64_t> seeds;
  for (std::size_t slot = 0; slot < count; ++slot) {
    const auto& sequence = work.running[slot];
    tokens.push_back(sequence.made.tokens.back());
    positions.push_back(sequence.position);
    counters.push_back(static_cast<std::int32_t>(sequence.made.tokens.size()));
    seeds.push_back(static_cast<std::int64_t>(sequence.seed));
    std::copy(sequence.pages.begin(), sequence.pages.end(),
              table.begin() + static_cast<std::ptrdiff_t>(slot * most_pages));
  }
  const auto device = options_.model.device;
  const StepInput input{
      to_tensor(tokens, device), to_tensor(positions, device),
      to_tensor(table, device).view({rows, static_cast<std::int64_t>(most_pages)})};
  const ops::Draw next{to_tensor(seeds, device), to_tensor(counters, device), input.tokens,
                       at::empty({rows}, at::TensorOptions(device).dtype(at::kFloat))};
  const auto mask = seen(work, 0);
  const auto made = at::empty({options_.burst, rows}, input.tokens.options());
  const auto scores = at::empty({options_.burst, rows}, next.log_probs.options());
  for (std::int64_t n = 0; n < options_.burst; ++n) {
    draw(work, model_.step(input), mask, next);
    made.select(0, n).copy_(next.tokens);
    scores.select(0, n).copy_(next.log_probs);
    if (options_.burst > 1) next.tokens.clamp_min_(0);  // take() tells; an embedding may not see it
    if (mask.defined()) mask.scatter_(1, next.tokens.to(at::kLong).unsqueeze(1), 1);
    input.positions.add_(1);
    next.counters.add_(1);
  }
  counts_.steps += options_.burst;
  const auto made_here = made.cpu(), scores_here = scores.cpu();
  for (auto slot = count; slot-- > 0;) {
    auto& sequence = work.running[slot];
    for (std::int64_t n = 0; n < options_.burst; ++n) {
      const auto at = n * rows + static_cast<std::int64_t>(slot);
      ++sequence.position;
      if (!take(work, sequence, made_here.const_data_ptr<std::int32_t>()[at],
                scores_here.const_data_ptr<float>()[at]))
        continue;
      finish(work, slot);
      break;
    }
  }
}

}  // namespace mgpu::rollout
