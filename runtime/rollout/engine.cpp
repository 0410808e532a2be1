#include "runtime/rollout/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "runtime/rollout/engine_work.hpp"

namespace mgpu::rollout {
namespace {

constexpr std::size_t kSpecialTokens = 8;  // that may stand within a stop text and show nothing

// Nobody's page besides.
std::int64_t all_pages(const EngineOptions& options) {
  if (options.pages > 0) return options.pages + 1;
  return options.sequences * (pages_in(options.longest + options.burst) + 1) + 1;
}

}  // namespace

Engine::Engine(const model::ModelConfig& config, const EngineOptions& options,
               model::WeightProvider& provider)
    : config_(config),
      options_(options),
      model_(config, options.model, provider, all_pages(options), options.longest + options.burst),
      pool_(all_pages(options)) {}

Engine::~Engine() = default;

Engine::Counts& Engine::Counts::operator+=(const Counts& other) {
  steps += other.steps;
  tokens += other.tokens;
  prompts += other.prompts;
  prompt_tokens += other.prompt_tokens;
  stepping += other.stepping;
  reading += other.reading;
  return *this;
}

std::vector<std::vector<Completion>> Engine::generate(const std::vector<Prompt>& prompts,
                                                      const Wanted& wanted) {
  Work work{.prompts = prompts,
            .wanted = wanted,
            .recordings = ops::Recording::Store(options_.model.device)};
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
    const auto start = std::chrono::steady_clock::now();
    admit(work);
    const auto middle = std::chrono::steady_clock::now();
    counts_.reading += std::chrono::duration<double>(middle - start).count();
    if (work.running.empty() && work.waiting.empty()) break;
    run_burst(work);
    counts_.stepping +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - middle).count();
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
  for (const auto& reading : readings)
    counts_.prompt_tokens += static_cast<std::int64_t>(reading.tokens.size());
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
