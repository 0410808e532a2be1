#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/profiling/range.hpp"
#include "runtime/rollout/engine_work.hpp"

// Which sequences the engine lets run: it gives them pages as they grow. If there are not enough,
// the ones that started last are set aside, and computed again when there are.
namespace mgpu::rollout {

// Even if every other sequence is set aside, the oldest one can go on to its end.
void Engine::check_cache(const std::vector<Request>& requests,
                         const GenerationSettings& settings) const {
  for (const auto& request : requests) {
    const auto size = static_cast<std::int64_t>(request.tokens.size());
    const auto copied = size % ops::kPageTokens == 0 ? 0 : 1;  // the last page of the prompt
    if (pages_in(size + settings.max_tokens + options_.burst) + copied >
        static_cast<std::int64_t>(pool_.free()))
      throw std::runtime_error("the KV cache is too small for one sequence of that length");
  }
}

std::int64_t Engine::free_pages() const {
  return static_cast<std::int64_t>(pool_.free());
}

// The pages of a sequence that has `tokens` more tokens than its prompt, and room for a burst.
std::int64_t Engine::pages_with(const Work& work, std::size_t prompt, std::int64_t tokens) const {
  const auto size = static_cast<std::int64_t>(work.requests[prompt].tokens.size());
  return pages_in(size + std::min(tokens, work.settings.max_tokens) + options_.burst);
}

// Pages that are neither in use nor expected to be, if every running sequence becomes as long as
// completions are on average.
std::int64_t Engine::spare_pages(const Work& work) const {
  const auto expected = work.lengths.value();
  auto spare = free_pages();
  for (const auto& sequence : work.running) {
    const auto tokens =
        sequence.position - static_cast<std::int64_t>(work.requests[sequence.prompt].tokens.size());
    const auto pages = pages_with(work, sequence.prompt, std::max(expected, tokens));
    spare -= std::max<std::int64_t>(0, pages - static_cast<std::int64_t>(sequence.pages.size()));
  }
  return spare;
}

// Pages that the next completion of a prompt is expected to need, of which it shares some.
std::int64_t Engine::expected_pages(const Work& work, std::size_t prompt) const {
  const auto size = static_cast<std::int64_t>(work.requests[prompt].tokens.size());
  return pages_with(work, prompt, work.lengths.value()) - size / ops::kPageTokens +
         (work.groups.contains(prompt) ? 0 : pages_in(size));
}

// Frees the pages of prompts that are kept for completions that have not started. The prompts are
// computed again when these start.
void Engine::forget_prompts(Work& work) {
  for (const auto& [prompt, group] : work.groups) {
    for (const auto page : group.pages) pool_.release(page);
    counts_.computed_again += static_cast<std::int64_t>(work.requests[prompt].tokens.size());
  }
  work.groups.clear();
}

// Gives the running sequences the pages of their next `steps` steps. If there are not enough, it
// sets sequences aside; but while bursts are queued, it returns false instead: the host does not
// know yet how the sequences go on, and which ones have ended.
bool Engine::provide_pages(Work& work, std::int64_t steps) {
  const auto lacking = [&](const Sequence& sequence) -> std::int64_t {
    if (sequence.left(work.settings) <= 0) return 0;
    return std::max<std::int64_t>(0, pages_in(sequence.position + sequence.queued + steps) -
                                         static_cast<std::int64_t>(sequence.pages.size()));
  };
  while (true) {
    std::int64_t all = 0;
    for (const auto& sequence : work.running) all += lacking(sequence);
    if (all <= free_pages()) break;
    if (!work.queued.empty()) return false;
    if (work.running.size() > 1) {
      set_last_aside(work);
    } else {
      forget_prompts(work);
    }
  }
  for (auto& sequence : work.running)
    for (auto n = lacking(sequence); n > 0; --n) sequence.pages.push_back(pool_.allocate());
  return true;
}

// Takes the pages of the sequence that started last. Those that are aside started even later, so
// that the first one to run again is always the oldest.
void Engine::set_last_aside(Work& work) {
  const auto last = std::ranges::max_element(work.running, {}, &Sequence::number);
  for (const auto page : last->pages) pool_.release(page);
  last->pages.clear();
  last->row = Rows::kNew;
  work.aside.push_front(std::move(*last));
  if (last + 1 != work.running.end()) *last = std::move(work.running.back());
  work.running.pop_back();
}

// Lets sequences that were set aside run again, the oldest first, if each has the pages to become
// longer by what completions are on average. If none runs, the oldest one does in any case. Returns
// whether one runs.
bool Engine::run_again(Work& work) {
  const auto max_count = static_cast<std::size_t>(options_.sequences);
  std::vector<Prefill> prefills;
  std::int64_t tokens = 0;
  auto spare = spare_pages(work);
  while (!work.aside.empty() && work.running.size() < max_count) {
    auto& sequence = work.aside.front();
    const auto& prompt = work.requests[sequence.prompt].tokens;
    const auto made = sequence.position - static_cast<std::int64_t>(prompt.size());
    const auto needed = pages_with(work, sequence.prompt, made + work.lengths.value());
    if (!work.running.empty() && needed > spare) break;
    if (!prefills.empty() && tokens + sequence.position > options_.prompt_tokens) break;
    const auto now = pages_in(sequence.position + options_.burst);
    if (now > free_pages()) forget_prompts(work);
    for (auto n = now; n > 0; --n) sequence.pages.push_back(pool_.allocate());
    spare -= needed;
    tokens += sequence.position;
    auto& prefill = prefills.emplace_back(prompt, sequence.pages);
    const auto begin = sequence.completion.tokens.begin();
    prefill.tokens.insert(prefill.tokens.end(), begin, begin + made);
    work.running.push_back(std::move(sequence));
    work.aside.pop_front();
  }
  if (prefills.empty()) return false;
  const profiling::Range range("prefill");
  model_.prefill(prefills);
  counts_.computed_again += tokens;
  return true;
}

}  // namespace mgpu::rollout
