#include "runtime/rollout/beam_search.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/div.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/topk.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "runtime/profiling/range.hpp"
#include "runtime/rollout/to_tensor.hpp"

namespace mgpu::rollout {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMostLogProbs = 1 << 23;  // in fp32 at a time

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Calls f(first row, log softmax(logits / temperature) of some rows, in fp32) until all rows are
// done. So the fp32 copies stay small.
template <class F>
void for_log_probs(const Tensor& logits, double temperature, F f) {
  const auto rows = std::max<std::int64_t>(1, kMostLogProbs / logits.size(1));
  for (std::int64_t first = 0; first < logits.size(0); first += rows) {
    auto part = logits.slice(0, first, std::min(first + rows, logits.size(0))).to(at::kFloat);
    if (temperature > 0 && temperature != 1) part = at::div(part, temperature);
    f(first, at::log_softmax(part, -1));
  }
}

}  // namespace

BeamSearch::BeamSearch(const Parts& parts, const std::vector<Request>& requests,
                       const GenerationSettings& settings)
    : parts_(parts),
      requests_(requests),
      settings_(settings),
      unreserved_(static_cast<std::int64_t>(parts.pool.free())) {}

std::vector<std::vector<Completion>> BeamSearch::run(const RequestFinished& finished) {
  std::vector<std::vector<Completion>> all(requests_.size());
  const auto take_finished = [&] {
    for (auto& search : searches_) {
      if (!search.beams.done()) continue;
      all[search.request] = completions_of(search);
      release(search);
      for (const auto& one : all[search.request])
        parts_.counts.tokens += static_cast<std::int64_t>(one.tokens.size());
      if (finished) finished(search.request, all[search.request]);
    }
    std::erase_if(searches_, [](const auto& search) { return search.beams.done(); });
  };
  while (next_ < requests_.size() || !searches_.empty()) {
    if (settings_.cancelled && settings_.cancelled()) {
      for (auto& search : searches_) release(search);
      return {};
    }
    const auto begin = Clock::now();
    const auto first = searches_.size();
    start();
    if (const auto started = std::span(searches_).subspan(first); !started.empty())
      advance(started, prefill(started));
    take_finished();
    parts_.counts.prefill_seconds += seconds_since(begin);
    if (searches_.empty()) continue;
    const auto middle = Clock::now();
    advance(searches_, step(searches_));
    take_finished();
    parts_.counts.decode_seconds += seconds_since(middle);
  }
  return all;
}

// The most pages that a search can have at a time: its beams share the full pages of the prompt.
std::int64_t BeamSearch::pages_for(std::size_t request) const {
  const auto size = static_cast<std::int64_t>(requests_[request].tokens.size());
  const auto shared = size / ops::kPageTokens;
  return shared + settings_.beams.count * (pages_in(size + settings_.max_tokens) - shared);
}

std::int64_t BeamSearch::prompt_size(const Search& search) const {
  return static_cast<std::int64_t>(requests_[search.request].tokens.size());
}

// Starts searches for which there are rows and pages.
void BeamSearch::start() {
  std::int64_t tokens = 0;
  for (bool first = true; next_ < requests_.size(); first = false) {
    const auto rows = static_cast<std::int64_t>(searches_.size() + 1) * settings_.beams.count;
    if (!searches_.empty() && rows > parts_.options.sequences) return;
    const auto pages = pages_for(next_);
    const auto size = requests_[next_].tokens.size();
    if (pages > unreserved_) {
      if (!searches_.empty()) return;
      throw std::runtime_error(
          fmt::format("the KV cache is too small for {} beams of a prompt with {} tokens",
                      settings_.beams.count, size));
    }
    tokens += static_cast<std::int64_t>(size);
    if (!first && tokens > parts_.options.prompt_tokens) return;
    unreserved_ -= pages;
    Search search{.request = next_++,
                  .beams = Beams(settings_),
                  .pages = std::vector<PageList>(1),
                  .reserved = pages};
    for (auto n = pages_in(static_cast<std::int64_t>(size)); n > 0; --n)
      search.pages.front().push_back(parts_.pool.allocate());
    searches_.push_back(std::move(search));
  }
}

// The logits of searches that have just started, one row each.
Tensor BeamSearch::prefill(std::span<const Search> searches) {
  const profiling::Range range("prefill");
  std::vector<Prefill> prefills;
  for (const auto& search : searches) {
    prefills.push_back({requests_[search.request].tokens, search.pages.front()});
    parts_.counts.prompt_tokens += prompt_size(search);
  }
  parts_.counts.prompts += static_cast<std::int64_t>(searches.size());
  return parts_.model.prefill(prefills);
}

// The logits after the last token of each running beam, one row each.
Tensor BeamSearch::step(std::span<Search> searches) {
  const profiling::Range range("decode");
  std::vector<std::int32_t> tokens, positions, table;
  const auto width =
      static_cast<std::size_t>(pages_in(parts_.options.longest + parts_.options.burst) + 1);
  for (auto& search : searches) {
    const auto position = prompt_size(search) + search.beams.length() - 1;
    const auto& running = search.beams.running();
    for (std::size_t i = 0; i < running.size(); ++i) {
      auto& pages = search.pages[i];
      if (static_cast<std::int64_t>(pages.size()) < pages_in(position + 1))
        pages.push_back(parts_.pool.allocate());
      tokens.push_back(running[i].token);
      positions.push_back(static_cast<std::int32_t>(position));
      table.insert(table.end(), pages.begin(), pages.end());
      table.resize(tokens.size() * width);
    }
  }
  ++parts_.counts.steps;
  const auto device = parts_.options.model.device;
  return parts_.model.step({to_tensor(tokens, device), to_tensor(positions, device),
                            to_tensor(table, device).view({-1, static_cast<std::int64_t>(width)})});
}

// Chooses the next beams of each search and gives them pages. `logits` has a row for each running
// beam of each search.
void BeamSearch::advance(std::span<Search> searches, const Tensor& logits) {
  const auto continuations = this->continuations(searches, logits);
  Copies copies;
  for (std::size_t i = 0; i < searches.size(); ++i) {
    auto& search = searches[i];
    for (const auto& one : continuations[i])
      if (!std::isfinite(one.log_prob))
        throw std::runtime_error(
            fmt::format("prompt {}: the model's logits are not finite after {} tokens; lower "
                        "learning_rate or check the weights",
                        search.request, search.beams.length()));
    search.beams.advance(continuations[i]);
    if (!search.beams.done()) move_pages(search, copies);
  }
  parts_.model.copy_pages(copies.from, copies.to);
}

BeamSearch::Continuations BeamSearch::continuations(std::span<const Search> searches,
                                                    const Tensor& logits) const {
  return settings_.allowed == nullptr ? most_likely(searches, logits) : allowed(searches, logits);
}

// The most likely continuations of every beam.
BeamSearch::Continuations BeamSearch::most_likely(std::span<const Search> searches,
                                                  const Tensor& logits) const {
  const auto count = std::min(searches.front().beams.candidates(), logits.size(1));
  std::vector<Tensor> values, tokens;
  for_log_probs(logits, settings_.sampling.temperature, [&](std::int64_t, const Tensor& log_probs) {
    auto [value, token] = at::topk(log_probs, count, -1);
    values.push_back(std::move(value));
    tokens.push_back(std::move(token));
  });
  const auto host_values = at::cat(values).cpu(), host_tokens = at::cat(tokens).cpu();
  const auto* value = host_values.const_data_ptr<float>();
  const auto* token = host_tokens.const_data_ptr<std::int64_t>();
  Continuations all(searches.size());
  for (std::size_t i = 0; i < searches.size(); ++i)
    for (std::size_t beam = 0; beam < searches[i].beams.running().size(); ++beam)
      for (std::int64_t n = 0; n < count; ++n)
        all[i].push_back({beam, static_cast<std::int32_t>(*token++), *value++});
  return all;
}

// The allowed continuations of every beam.
BeamSearch::Continuations BeamSearch::allowed(std::span<const Search> searches,
                                              const Tensor& logits) const {
  Continuations all(searches.size());
  std::vector<std::size_t> rows{0};  // where each row's continuations begin
  std::vector<std::int64_t> places;  // in the logits
  for (std::size_t i = 0; i < searches.size(); ++i) {
    const auto& running = searches[i].beams.running();
    for (std::size_t beam = 0; beam < running.size(); ++beam) {
      const auto row = static_cast<std::int64_t>(rows.size()) - 1;
      for (const auto token : settings_.allowed->next(running[beam].node)) {
        all[i].push_back({beam, token, 0});
        places.push_back(row * logits.size(1) + token);
      }
      rows.push_back(places.size());
    }
  }
  const auto where = to_tensor(places, logits.device());
  std::vector<Tensor> values;
  for_log_probs(
      logits, settings_.sampling.temperature, [&](std::int64_t first, const Tensor& log_probs) {
        const auto at_row = [&](std::int64_t row) {
          return static_cast<std::int64_t>(rows[static_cast<std::size_t>(row)]);
        };
        const auto mine = where.slice(0, at_row(first), at_row(first + log_probs.size(0)));
        values.push_back(log_probs.view({-1}).index_select(0, mine.sub(first * logits.size(1))));
      });
  const auto host = at::cat(values).cpu();
  const auto* value = host.const_data_ptr<float>();
  for (auto& continuations : all)
    for (auto& one : continuations) one.log_prob = *value++;
  return all;
}

// The first continuation of a beam takes its pages, the others share the full ones.
void BeamSearch::move_pages(Search& search, Copies& copies) {
  const auto& running = search.beams.running();
  auto before = std::exchange(search.pages, {});
  std::vector<bool> continued(before.size());
  for (const auto& beam : running) continued[beam.parent] = true;
  for (std::size_t i = 0; i < before.size(); ++i)
    if (!continued[i])
      for (const auto page : before[i]) parts_.pool.release(page);
  const auto cached = prompt_size(search) + search.beams.length() - 1;
  const auto full = static_cast<std::size_t>(cached / ops::kPageTokens);
  std::vector<bool> taken(before.size());
  for (const auto& beam : running) {
    const auto& pages = before[beam.parent];
    auto& own = search.pages.emplace_back(pages);
    if (!taken[beam.parent]) {
      taken[beam.parent] = true;
      continue;
    }
    for (std::size_t i = 0; i < full; ++i) parts_.pool.share(pages[i]);
    if (full == pages.size()) continue;
    own.back() = parts_.pool.allocate();
    copies.from.push_back(pages.back());
    copies.to.push_back(own.back());
  }
}

void BeamSearch::release(Search& search) {
  for (const auto& pages : search.pages)
    for (const auto page : pages) parts_.pool.release(page);
  search.pages.clear();
  unreserved_ += search.reserved;
}

std::vector<Completion> BeamSearch::completions_of(const Search& search) const {
  auto completions = search.beams.completions();
  const auto wanted = requests_[search.request].seeds.size();
  if (completions.size() < wanted)
    throw std::runtime_error(
        fmt::format("prompt {}: there are only {} beams of at most {} tokens, but {} completions "
                    "are requested",
                    search.request, completions.size(), settings_.max_tokens, wanted));
  completions.resize(wanted);
  return completions;
}

}  // namespace mgpu::rollout
