#include "runtime/rollout/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/profiling/range.hpp"
#include "runtime/rollout/beam_search.hpp"
#include "runtime/rollout/engine_work.hpp"
#include "runtime/rollout/stopwatch.hpp"

namespace mgpu::rollout {
namespace {

// Includes page 0, which is never allocated.
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
  rows += other.rows;
  steps_while_waiting += other.steps_while_waiting;
  rows_while_waiting += other.rows_while_waiting;
  computed_again += other.computed_again;
  queued_behind += other.queued_behind;
  decode_seconds += other.decode_seconds;
  prefill_seconds += other.prefill_seconds;
  return *this;
}

std::vector<std::vector<Completion>> Engine::generate(const std::vector<Request>& requests,
                                                      const GenerationSettings& settings,
                                                      const RequestFinished& finished) {
  check_settings(settings, config_.vocab_size);
  check_requests(requests, settings);
  counts_ = {};
  if (settings.beams.count > 0)
    return BeamSearch({options_, model_, pool_, counts_}, requests, settings).run(finished);
  check_cache(requests, settings);
  Work work{.requests = requests,
            .settings = settings,
            .finished = finished,
            // Which tokens are allowed next is decided on the host.
            .burst = settings.allowed == nullptr ? options_.burst : 1,
            .lengths = LengthEstimate(settings.max_tokens),
            .recordings = ops::Recording::Store(options_.model.device),
            .unfinished_work = {options_.model.device}};
  work.completions.resize(requests.size());
  for (std::size_t p = 0; p < requests.size(); ++p) {
    work.completions[p].resize(requests[p].seeds.size());
    work.unfinished.push_back(requests[p].seeds.size());
    work.unstarted.push_back(requests[p].seeds.size());
    for (std::size_t i = 0; i < requests[p].seeds.size(); ++i) work.waiting.emplace_back(p, i);
  }
  while (true) {
    if (settings.cancelled && settings.cancelled()) {
      release_pages(work);
      return {};
    }
    // Not more often than once per burst without overlap: a pass over few prompts takes long.
    if (work.running.empty() || work.queued.empty() || work.steps_since_start >= work.burst) {
      const Stopwatch watch;
      const auto decoding = counts_.decode_seconds;
      if (admit(work)) work.steps_since_start = 0;
      counts_.prefill_seconds += watch.seconds() - (counts_.decode_seconds - decoding);
    }
    if (work.running.empty() && work.queued.empty()) break;
    const Stopwatch watch;
    decode(work);
    counts_.decode_seconds += watch.seconds();
  }
  return std::move(work.completions);
}

void Engine::check_requests(const std::vector<Request>& requests,
                            const GenerationSettings& settings) const {
  for (std::size_t p = 0; p < requests.size(); ++p) {
    const auto size = static_cast<std::int64_t>(requests[p].tokens.size());
    if (size == 0) throw std::runtime_error(fmt::format("prompt {} is empty", p));
    if (size + settings.max_tokens > options_.longest)
      throw std::runtime_error(fmt::format(
          "prompt {} has {} tokens; with a completion of {} that exceeds the maximum of {}", p,
          size, settings.max_tokens, options_.longest));
    const auto completions = static_cast<std::int64_t>(requests[p].seeds.size());
    if (settings.beams.count > 0 && completions > settings.beams.count)
      throw std::runtime_error(fmt::format("prompt {}: {} completions are requested of {} beams", p,
                                           completions, settings.beams.count));
  }
}

// Fills the free slots, and returns whether a sequence starts or runs again. A completion that ends
// with its first token frees its slot at once. What is queued may still write to pages that a
// sequence has released; the passes below come after it on the same stream.
bool Engine::admit(Work& work) {
  const auto max_count = static_cast<std::size_t>(options_.sequences);
  bool any = false;
  while (!work.aside.empty() && work.running.size() < max_count && run_again(work)) any = true;
  while (work.aside.empty() && !work.waiting.empty() && work.running.size() < max_count) {
    const auto first = work.running.size();
    // As many prompts as fit are prefilled together; the rest waits for the next iteration.
    std::vector<std::size_t> to_read;
    std::int64_t tokens = 0;
    auto spare = spare_pages(work);
    while (!work.waiting.empty() && work.running.size() < max_count) {
      const auto [prompt, index] = work.waiting.front();
      // One can always run.
      const bool alone = work.running.empty();
      if (alone && expected_pages(work, prompt) > free_pages()) forget_prompts(work);
      const auto needed = expected_pages(work, prompt);
      if (!alone && needed > spare) break;
      if (!work.groups.contains(prompt)) {
        tokens += static_cast<std::int64_t>(work.requests[prompt].tokens.size());
        if (!to_read.empty() && tokens > options_.prompt_tokens) break;
        Group group;
        for (auto n = pages_in(static_cast<std::int64_t>(work.requests[prompt].tokens.size()));
             n > 0; --n)
          group.pages.push_back(pool_.allocate());
        work.groups.emplace(prompt, std::move(group));
        to_read.push_back(prompt);
      }
      spare -= needed;
      work.waiting.pop_front();
      start_sequence(work, prompt, index);
    }
    if (work.running.size() == first) break;
    prefill_groups(work, to_read);
    sample_first_tokens(work, first);
    any = true;
  }
  return any;
}

// Prefills prompts whose pages are allocated.
void Engine::prefill_groups(Work& work, const std::vector<std::size_t>& prompts) {
  if (prompts.empty()) return;
  const profiling::Range range("prefill");
  std::vector<Prefill> prefills;
  for (const auto prompt : prompts)
    prefills.push_back({work.requests[prompt].tokens, work.groups.at(prompt).pages});
  const auto logits = model_.prefill(prefills);
  for (std::size_t i = 0; i < prompts.size(); ++i)
    work.groups.at(prompts[i]).logits = logits.select(0, static_cast<std::int64_t>(i));
  counts_.prompts += static_cast<std::int64_t>(prompts.size());
  for (const auto& prefill : prefills)
    counts_.prompt_tokens += static_cast<std::int64_t>(prefill.tokens.size());
}

// Assigns a slot and the pages of its first burst to a completion. If the last page of the prompt
// is not full, sample_first_tokens() copies it.
void Engine::start_sequence(Work& work, std::size_t prompt, std::size_t index) {
  const auto& tokens = work.requests[prompt].tokens;
  const auto& group = work.groups.at(prompt);
  Sequence sequence{.prompt = prompt,
                    .index = index,
                    .number = work.started++,
                    .position = static_cast<std::int32_t>(tokens.size()),
                    .seed = work.requests[prompt].seeds[index]};
  const auto whole = tokens.size() / ops::kPageTokens;
  for (std::size_t i = 0; i < whole; ++i) {
    pool_.share(group.pages[i]);
    sequence.pages.push_back(group.pages[i]);
  }
  for (auto n = pages_with(work, prompt, 0); n > static_cast<std::int64_t>(whole); --n)
    sequence.pages.push_back(pool_.allocate());
  if (work.settings.repetition_penalty != 1) sequence.prompt_tokens = tokens;
  work.running.push_back(std::move(sequence));
}

// Returns whether that was its last token.
bool Engine::append_token(Work& work, Sequence& sequence, std::int32_t token,
                          float log_prob) const {
  if (token < 0)
    throw std::runtime_error(
        fmt::format("prompt {}: the model's logits are not finite after {} tokens; lower "
                    "learning_rate or check "
                    "the weights",
                    sequence.prompt, sequence.completion.tokens.size()));
  auto& made = sequence.completion;
  made.tokens.push_back(token);
  made.log_probs.push_back(log_prob);
  work.lengths.add_token();
  if (work.settings.allowed != nullptr)
    sequence.node = work.settings.allowed->after(sequence.node, token);
  const auto reason = stop_reason(made.tokens, work.settings);
  if (reason) made.stop_reason = *reason;
  return reason.has_value();
}

// Takes the finished completion; the sequence in the last slot moves into its slot.
void Engine::finish_sequence(Work& work, std::size_t slot) {
  auto& sequence = work.running[slot];
  work.lengths.add_end();
  counts_.tokens += static_cast<std::int64_t>(sequence.completion.tokens.size());
  for (const auto page : sequence.pages) pool_.release(page);
  const auto request = sequence.prompt;
  work.completions[request][sequence.index] = std::move(sequence.completion);
  if (slot + 1 != work.running.size()) sequence = std::move(work.running.back());
  work.running.pop_back();
  if (--work.unfinished[request] == 0 && work.finished)
    work.finished(request, work.completions[request]);
}

// Releases what unfinished sequences and prompts hold.
void Engine::release_pages(const Work& work) {
  for (const auto& sequence : work.running)
    for (const auto page : sequence.pages) pool_.release(page);
  for (const auto& [prompt, group] : work.groups)
    for (const auto page : group.pages) pool_.release(page);
}

}  // namespace mgpu::rollout
