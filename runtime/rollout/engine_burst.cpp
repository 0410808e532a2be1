#include <ATen/ops/empty.h>
#include <ATen/ops/index_fill.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "runtime/kernels/ops.hpp"
#include "runtime/profiling/range.hpp"
#include "runtime/rollout/engine_work.hpp"
#include "runtime/rollout/to_tensor.hpp"

// The engine's computation: first tokens, and bursts of decoding steps.
namespace mgpu::rollout {

// Samples the first tokens of the sequences from slot `first` on from their prompts' logits.
void Engine::sample_first_tokens(Work& work, std::size_t first) {
  std::vector<Tensor> rows;
  std::vector<std::int64_t> seeds;
  std::vector<std::int32_t> from, to;
  for (auto slot = first; slot < work.running.size(); ++slot) {
    const auto& sequence = work.running[slot];
    auto& group = work.groups.at(sequence.prompt);
    rows.push_back(group.logits);
    seeds.push_back(static_cast<std::int64_t>(sequence.seed));
    const auto& tokens = work.requests[sequence.prompt].tokens;
    if (tokens.size() % ops::kPageTokens != 0) {
      from.push_back(group.pages.back());
      to.push_back(sequence.pages[tokens.size() / ops::kPageTokens]);
    }
    --work.unstarted[sequence.prompt];
  }
  model_.copy_pages(from, to);
  const auto count = static_cast<std::int64_t>(rows.size());
  const auto device = options_.model.device;
  const auto where = at::TensorOptions(device);
  const ops::Draw first_draw{to_tensor(seeds, device), at::zeros({count}, where.dtype(at::kInt)),
                             at::empty({count}, where.dtype(at::kInt)),
                             at::empty({count}, where.dtype(at::kFloat))};
  Masks masks;
  if (work.settings.repetition_penalty != 1)
    masks.seen = at::empty({count, config_.vocab_size}, where.dtype(at::kBool));
  if (work.settings.allowed != nullptr)
    masks.forbidden = at::empty({count, config_.vocab_size}, where.dtype(at::kBool));
  mark_seen(work, first, masks.seen);
  mark_forbidden(work, first, masks.forbidden);
  draw(work, at::stack(rows), masks, first_draw);
  std::erase_if(work.groups, [&](const auto& item) {
    if (work.unstarted[item.first] > 0) return false;
    for (const auto page : item.second.pages) pool_.release(page);
    return true;
  });
  const auto tokens = first_draw.tokens.cpu(), log_probs = first_draw.log_probs.cpu();
  for (auto i = count - 1; i >= 0; --i) {
    const auto slot = first + static_cast<std::size_t>(i);
    if (append_token(work, work.running[slot], tokens.const_data_ptr<std::int32_t>()[i],
                     log_probs.const_data_ptr<float>()[i]))
      finish_sequence(work, slot);
  }
}

// Marks in `seen`, bool [rows, vocabulary], the tokens of prompt and completion of each sequence
// from slot `first` on.
void Engine::mark_seen(const Work& work, std::size_t first, const Tensor& seen) const {
  if (!seen.defined()) return;
  std::vector<std::int64_t> places;
  for (auto slot = first; slot < work.running.size(); ++slot) {
    const auto row = static_cast<std::int64_t>(slot - first) * config_.vocab_size;
    for (const auto* tokens :
         {&work.running[slot].prompt_tokens, &work.running[slot].completion.tokens})
      for (const auto token : *tokens) places.push_back(row + token);
  }
  seen.zero_();
  seen.view({-1}).index_fill_(0, to_tensor(places, options_.model.device), 1);
}

// Marks in `forbidden`, bool [rows, vocabulary], the tokens that may not follow each sequence from
// slot `first` on. In the padding rows behind them, no token is forbidden.
void Engine::mark_forbidden(const Work& work, std::size_t first, const Tensor& forbidden) const {
  if (!forbidden.defined()) return;
  std::vector<std::int64_t> places;
  for (auto slot = first; slot < work.running.size(); ++slot) {
    const auto row = static_cast<std::int64_t>(slot - first) * config_.vocab_size;
    for (const auto token : work.settings.allowed->next(work.running[slot].node))
      places.push_back(row + token);
  }
  forbidden.zero_();
  forbidden.narrow(0, 0, static_cast<std::int64_t>(work.running.size() - first)).fill_(1);
  forbidden.view({-1}).index_fill_(0, to_tensor(places, options_.model.device), 0);
}

// The log-probabilities are those of the model, even if a penalty or a mask changed the sampling.
void Engine::draw(const Work& work, const Tensor& logits, const Masks& masks,
                  const ops::Draw& draw) const {
  const auto& sampling = work.settings.sampling;
  if (!masks.seen.defined() && !masks.forbidden.defined())
    return ops::sample(logits, sampling, draw);
  Tensor changed = logits;
  if (masks.seen.defined()) {
    const double penalty = work.settings.repetition_penalty;
    const auto shaped = at::where(logits.gt(0), logits.div(penalty), logits.mul(penalty));
    changed = at::where(masks.seen, shaped, logits);
  }
  if (masks.forbidden.defined())
    changed = changed.masked_fill(masks.forbidden, -std::numeric_limits<double>::infinity());
  ops::sample(changed, sampling, draw);
  const double temperature = sampling.temperature > 0 ? sampling.temperature : 1;
  draw.log_probs.copy_(ops::token_scores(logits, draw.tokens, temperature).log_probs);
}

Engine::Bucket& Engine::bucket(Work& work) {
  const auto device = options_.model.device;
  const auto rows =
      rows_for(static_cast<std::int64_t>(work.running.size()), options_.sequences, device);
  auto& bucket = work.buckets[rows];
  if (bucket) return *bucket;
  // Without recording any number of rows is possible, so old buckets are not kept.
  if (!device.is_cuda())
    std::erase_if(work.buckets, [](const auto& item) { return item.second != nullptr; });
  const bool asks = work.settings.repetition_penalty != 1;
  const RowsShape shape{.rows = rows,
                        .pages = pages_in(options_.longest + options_.burst) + 1,
                        .burst = work.burst,
                        .vocabulary = asks ? config_.vocab_size : 0,
                        .restricted = work.settings.allowed != nullptr ? config_.vocab_size : 0};
  bucket = std::make_unique<Bucket>(shape, device, work.recordings, [this, &work](Rows& r) {
    draw(work, model_.step(r.input()), {r.seen(), r.forbidden()}, r.draw());
    r.advance();
  });
  return *bucket;
}

void Engine::run_burst(Work& work) {
  const profiling::Range range("decode");
  provide_pages(work);
  auto& [rows, step] = bucket(work);
  std::vector<Rows::Row> now;
  for (const auto& sequence : work.running)
    now.push_back({.token = sequence.completion.tokens.back(),
                   .position = sequence.position,
                   .drawn = static_cast<std::int32_t>(sequence.completion.tokens.size()),
                   .seed = static_cast<std::int64_t>(sequence.seed),
                   .pages = &sequence.pages});
  rows.fill(now);
  mark_seen(work, 0, rows.seen());
  mark_forbidden(work, 0, rows.forbidden());
  for (std::int64_t n = 0; n < work.burst; ++n) step.run();
  counts_.steps += work.burst;
  counts_.rows += work.burst * static_cast<std::int64_t>(now.size());
  const auto results = rows.results();
  for (auto slot = now.size(); slot-- > 0;) {
    auto& sequence = work.running[slot];
    for (std::int64_t n = 0; n < work.burst; ++n) {
      ++sequence.position;
      if (!append_token(work, sequence, results.token(n, slot), results.log_prob(n, slot)))
        continue;
      finish_sequence(work, slot);
      break;
    }
  }
}

}  // namespace mgpu::rollout
