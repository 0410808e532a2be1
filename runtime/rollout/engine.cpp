#include "runtime/rollout/engine.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_fill.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <stdexcept>

#include "runtime/kernels/ops.hpp"

namespace mgpu::rollout {

struct Engine::Group {
  std::vector<std::int32_t> pages;  // of the prompt
  Tensor logits;                    // [vocab], behind its last token
  std::size_t to_start = 0;         // completions that have not begun
};

struct Engine::Sequence {
  std::size_t prompt = 0, index = 0;
  std::vector<std::int32_t> pages;
  std::vector<std::int32_t> read;  // the prompt; with a penalty only
  std::int32_t position = 0;       // of the token that is read next
  std::uint64_t seed = 0;
  Completion made;
};

struct Engine::Work {
  const std::vector<Prompt>& prompts;
  const Wanted& wanted;
  std::deque<std::pair<std::size_t, std::size_t>> waiting;  // prompt, index of the completion
  std::map<std::size_t, Group> groups;
  std::vector<Sequence> running;  // a slot each
  std::vector<std::vector<Completion>> made;
};

namespace {

constexpr std::size_t kSpecialTokens = 8;  // that may stand within a stop text and show nothing

template <class T>
Tensor to_tensor(const std::vector<T>& values, at::Device device) {
  const auto type = sizeof(T) == 4 ? at::kInt : at::kLong;
  const auto host = at::from_blob(const_cast<T*>(values.data()),
                                  {static_cast<std::int64_t>(values.size())}, type);
  return device.is_cpu() ? host.clone() : host.to(device);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t pages_in(std::int64_t tokens) {
  return ceil_div(tokens, ops::kPageTokens);
}

// Nobody's page besides.
std::int64_t all_pages(const EngineOptions& options) {
  if (options.pages > 0) return options.pages + 1;
  return options.sequences * (pages_in(options.longest + options.burst) + 1) + 1;
}

}  // namespace

Engine::Engine(const model::ModelConfig& config, const EngineOptions& options,
               model::Keeper& keeper)
    : config_(config),
      options_(options),
      model_(config, options.model, keeper, all_pages(options), options.longest + options.burst),
      pool_(all_pages(options)) {}

Engine::~Engine() = default;

std::vector<std::vector<Completion>> Engine::generate(const std::vector<Prompt>& prompts,
                                                      const Wanted& wanted) {
  Work work{.prompts = prompts, .wanted = wanted};
  work.made.resize(prompts.size());
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const auto size = static_cast<std::int64_t>(prompts[p].tokens.size());
    if (size == 0) throw std::runtime_error(fmt::format("prompt {} is empty", p));
    if (size + wanted.most_tokens > options_.longest)
      throw std::runtime_error(
          fmt::format("prompt {} has {} tokens, which with {} of the completion is more than {}", p,
                      size, wanted.most_tokens, options_.longest));
    work.made[p].resize(prompts[p].seeds.size());
    for (std::size_t i = 0; i < prompts[p].seeds.size(); ++i) work.waiting.emplace_back(p, i);
  }
  counts_ = {};
  while (true) {
    admit(work);
    if (work.running.empty() && work.waiting.empty()) break;
    run_burst(work);
  }
  return std::move(work.made);
}

// Pages of a completion, those that it shares with others left out.
std::int64_t Engine::pages_for(std::size_t prompt_tokens, const Wanted& wanted) const {
  const auto size = static_cast<std::int64_t>(prompt_tokens);
  return pages_in(size + wanted.most_tokens + options_.burst) - size / ops::kPageTokens;
}

bool Engine::has_room(const Work& work, std::size_t prompt, bool read) const {
  const auto size = work.prompts[prompt].tokens.size();
  const auto wanted =
      pages_for(size, work.wanted) + (read ? 0 : pages_in(static_cast<std::int64_t>(size)));
  return static_cast<std::int64_t>(pool_.free()) >= wanted;
}

// Fills the slots that are free. What ends with its first token makes room at once.
void Engine::admit(Work& work) {
  const auto most = static_cast<std::size_t>(options_.sequences);
  while (!work.waiting.empty() && work.running.size() < most) {
    const auto first = work.running.size();
    // Prompts are read together as far as they fit; the rest waits for the next round.
    std::vector<std::size_t> to_read;
    std::int64_t tokens = 0;
    while (!work.waiting.empty() && work.running.size() < most) {
      const auto [prompt, index] = work.waiting.front();
      const bool read = work.groups.contains(prompt);
      if (!has_room(work, prompt, read)) break;
      if (!read) {
        tokens += static_cast<std::int64_t>(work.prompts[prompt].tokens.size());
        if (!to_read.empty() && tokens > options_.prompt_tokens) break;
        Group group{.to_start = work.prompts[prompt].seeds.size()};
        for (auto n = pages_in(static_cast<std::int64_t>(work.prompts[prompt].tokens.size()));
             n > 0; --n)
          group.pages.push_back(pool_.take());
        work.groups.emplace(prompt, std::move(group));
        to_read.push_back(prompt);
      }
      work.waiting.pop_front();
      start(work, prompt, index);
    }
    if (work.running.size() == first) {
      if (work.running.empty())
        throw std::runtime_error("the cache has no room for one sequence of that length");
      return;
    }
    open_groups(work, to_read);
    draw_first(work, first);
  }
}

// Reads prompts whose pages are there.
void Engine::open_groups(Work& work, const std::vector<std::size_t>& prompts) {
  if (prompts.empty()) return;
  std::vector<Reading> readings;
  for (const auto prompt : prompts)
    readings.push_back({work.prompts[prompt].tokens, work.groups.at(prompt).pages});
  const auto logits = model_.read(readings);
  for (std::size_t i = 0; i < prompts.size(); ++i)
    work.groups.at(prompts[i]).logits = logits.select(0, static_cast<std::int64_t>(i));
  counts_.prompts += static_cast<std::int64_t>(prompts.size());
}

// Gives a completion its slot and pages; the last page of the prompt, if it is not full, is copied
// by draw_first().
void Engine::start(Work& work, std::size_t prompt, std::size_t index) {
  const auto& tokens = work.prompts[prompt].tokens;
  const auto& group = work.groups.at(prompt);
  Sequence sequence{.prompt = prompt,
                    .index = index,
                    .position = static_cast<std::int32_t>(tokens.size()),
                    .seed = work.prompts[prompt].seeds[index]};
  const auto whole = tokens.size() / ops::kPageTokens;
  for (std::size_t i = 0; i < whole; ++i) {
    pool_.share(group.pages[i]);
    sequence.pages.push_back(group.pages[i]);
  }
  for (auto n = pages_for(tokens.size(), work.wanted); n > 0; --n)
    sequence.pages.push_back(pool_.take());
  if (work.wanted.repetition_penalty != 1) sequence.read = tokens;
  work.running.push_back(std::move(sequence));
}

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

// Whether that was its last token.
bool Engine::take(Work& work, Sequence& sequence, std::int32_t token, float log_prob) const {
  if (token < 0)
    throw std::runtime_error(fmt::format(
        "prompt {}: after {} tokens the model's logits are not finite; lower learning_rate or look "
        "at the weights",
        sequence.prompt, sequence.made.tokens.size()));
  auto& made = sequence.made;
  made.tokens.push_back(token);
  made.log_probs.push_back(log_prob);
  const auto& wanted = work.wanted;
  const auto& stops = wanted.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
    made.ended = Ended::by_token;
    return true;
  }
  for (const auto& stop : wanted.stop_texts) {
    // Every token but special ones is a byte of text at least.
    const auto tail = std::min(made.tokens.size(), stop.size() + kSpecialTokens);
    const auto text = wanted.text_of(std::span(made.tokens).last(tail));
    if (text.find(stop) == std::string::npos) continue;
    made.ended = Ended::by_text;
    return true;
  }
  return static_cast<std::int64_t>(made.tokens.size()) >= wanted.most_tokens;
}

// Takes what it made; the last slot's sequence moves to the slot.
void Engine::finish(Work& work, std::size_t slot) {
  auto& sequence = work.running[slot];
  counts_.tokens += static_cast<std::int64_t>(sequence.made.tokens.size());
  for (const auto page : sequence.pages) pool_.give(page);
  work.made[sequence.prompt][sequence.index] = std::move(sequence.made);
  if (slot + 1 != work.running.size()) sequence = std::move(work.running.back());
  work.running.pop_back();
}

}  // namespace mgpu::rollout
