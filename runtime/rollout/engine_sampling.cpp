#include <ATen/ops/empty.h>
#include <ATen/ops/index_fill.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "runtime/kernels/ops.hpp"
#include "runtime/rollout/engine_work.hpp"
#include "runtime/rollout/stopwatch.hpp"
#include "runtime/rollout/to_tensor.hpp"

// The engine's sampling: first tokens, and what changes the logits of any token.
namespace mgpu::rollout {

// Samples the first tokens of the sequences from slot `first` on from their prompts' logits.
void Engine::sample_first_tokens(Work& work, std::size_t first) {
  std::vector<Tensor> rows;
  std::vector<std::int64_t> seeds;
  std::vector<std::int32_t> from, to;
  std::vector<NewRow> fresh;
  for (auto slot = first; slot < work.running.size(); ++slot) {
    const auto& sequence = work.running[slot];
    auto& group = work.groups.at(sequence.prompt);
    fresh.push_back({static_cast<std::int64_t>(rows.size()), &sequence});
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
  mark_seen(fresh, masks.seen);
  mark_forbidden(work, first, masks.forbidden);
  draw(work, at::stack(rows), masks, first_draw);
  std::erase_if(work.groups, [&](const auto& item) {
    if (work.unstarted[item.first] > 0) return false;
    for (const auto page : item.second.pages) pool_.release(page);
    return true;
  });
  if (!work.queued.empty()) {  // the time until then is that of decoding
    const Stopwatch watch;
    work.queued.back().results.wait();
    counts_.decode_seconds += watch.seconds();
  }
  const auto tokens = first_draw.tokens.cpu(), log_probs = first_draw.log_probs.cpu();
  for (auto i = count - 1; i >= 0; --i) {
    const auto slot = first + static_cast<std::size_t>(i);
    if (append_token(work, work.running[slot], tokens.const_data_ptr<std::int32_t>()[i],
                     log_probs.const_data_ptr<float>()[i]))
      finish_sequence(work, slot);
  }
}

// Sets these rows of `seen`, bool [rows, vocabulary], to the tokens of prompt and completion of
// their sequences.
void Engine::mark_seen(const std::vector<NewRow>& rows, const Tensor& seen) const {
  if (!seen.defined() || rows.empty()) return;
  std::vector<std::int64_t> numbers, places;
  for (const auto& [row, sequence] : rows) {
    numbers.push_back(row);
    for (const auto* tokens : {&sequence->prompt_tokens, &sequence->completion.tokens})
      for (const auto token : *tokens) places.push_back(row * config_.vocab_size + token);
  }
  seen.index_fill_(0, to_tensor(numbers, options_.model.device), 0);
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

}  // namespace mgpu::rollout
