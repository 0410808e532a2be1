#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "runtime/profiling/range.hpp"
#include "runtime/rollout/engine_work.hpp"

// The engine's bursts of decoding steps. While the host examines the tokens of one, the device
// computes the next: its rows are those of the sequences that go on as far as the host knows, and
// its input tokens stay on the device. What it computes for a sequence that turns out to have ended
// is dropped.
//
// Such a sequence gives its pages back while the device may still write to them. That is right
// because everything that writes pages (steps, prefill passes, copies of pages) runs on the current
// stream: a sequence that gets a page writes to it later.
namespace mgpu::rollout {
namespace {

// A sequence that has ended is computed for a quarter of `Work::burst` longer than without overlap,
// and others get its slot half of it later. If completions are at least so many times as long as
// `Work::burst`, that costs less than the host's time.
constexpr std::int64_t kLong = 4, kLongIfOthersWait = 8;

}  // namespace

UnfinishedWork::~UnfinishedWork() {
  if (!device.is_cuda()) return;
  const c10::impl::VirtualGuardImpl gpu(device.type());
  try {
    gpu.synchronizeStream(gpu.getStream(device));
  } catch (const std::exception&) {
    // The device has failed: nothing runs any more, and the next call reports it.
  }
}

// The steps for so many sequences, of which the longest has `pages` pages at their end.
Engine::Bucket& Engine::bucket(Work& work, std::int64_t sequences, std::int64_t pages) {
  const auto device = options_.model.device;
  const bool asks = work.settings.repetition_penalty != 1;
  const bool restricts = work.settings.allowed != nullptr;
  const auto most = pages_in(options_.longest + options_.burst) + 1;
  // With masks of the vocabulary, buckets of several widths would take too much memory.
  pages = asks || restricts ? most : table_pages_for(pages, most);
  auto rows = rows_for(sequences, options_.sequences, device);
  // Without overlap the GPU waits while the host records.
  if (device.is_cuda() && !may_overlap(work)) {
    std::vector<std::int64_t> recorded;
    for (const auto& [size, bucket] : work.buckets)
      if (size.first == pages) recorded.push_back(size.second);
    rows = rows_for_few_steps(rows, recorded, options_.model.dtype);
  }
  auto& bucket = work.buckets[{pages, rows}];
  if (bucket) return *bucket;
  // Without recording any number of rows is possible, so old buckets are not kept.
  if (!device.is_cuda())
    std::erase_if(work.buckets, [](const auto& item) { return item.second != nullptr; });
  const RowsShape shape{.rows = rows,
                        .pages = pages,
                        .burst = work.burst,
                        .vocabulary = asks ? config_.vocab_size : 0,
                        .restricted = restricts ? config_.vocab_size : 0};
  bucket = std::make_unique<Bucket>(shape, device, work.recordings, [this, &work](Rows& r) {
    draw(work, model_.step(r.input()), {r.seen(), r.forbidden()}, r.draw());
    r.advance();
  });
  return *bucket;
}

bool Engine::may_overlap(const Work& work) const {
  const auto bursts = work.waiting.empty() && work.aside.empty() ? kLong : kLongIfOthersWait;
  return options_.overlap && work.burst > 1 && work.lengths.value() >= bursts * work.burst;
}

// Queues bursts and examines the oldest one.
void Engine::decode(Work& work) {
  const profiling::Range range("decode");
  const bool overlap = may_overlap(work);
  const auto steps = overlap ? work.burst / 2 : work.burst;
  while (work.queued.size() < (overlap ? 2 : 1) && queue_burst(work, steps)) {
  }
  examine_burst(work);
}

// Returns false if there is nothing to queue before the host has examined what is queued.
bool Engine::queue_burst(Work& work, std::int64_t most_steps) {
  std::int64_t count = 0, steps = 0, pages = 0;
  for (const auto& sequence : work.running)
    steps = std::max(steps, std::min(most_steps, sequence.left(work.settings)));
  if (steps == 0 || !provide_pages(work, steps)) return false;
  for (const auto& sequence : work.running) {
    if (sequence.left(work.settings) <= 0) continue;
    ++count;
    pages = std::max({pages, pages_in(sequence.position + sequence.queued + steps),
                      static_cast<std::int64_t>(sequence.pages.size())});
  }
  auto& [rows, step] = bucket(work, count, pages);
  Burst burst{.sequences = {}, .steps = steps, .results = {}};
  std::vector<Rows::Row> now;
  std::vector<NewRow> fresh;
  for (auto& sequence : work.running) {
    const auto from = std::exchange(sequence.row, Rows::kNew);
    if (sequence.left(work.settings) <= 0) continue;  // what is queued reaches the maximum length
    const auto& tokens = sequence.completion.tokens;
    sequence.row = static_cast<std::int32_t>(now.size());
    if (from == Rows::kNew) fresh.push_back({sequence.row, &sequence});
    now.push_back({.from = from,
                   .token = tokens.back(),
                   .position = sequence.position + sequence.queued,
                   .drawn = static_cast<std::int32_t>(tokens.size()) + sequence.queued,
                   .seed = static_cast<std::int64_t>(sequence.seed),
                   .pages = &sequence.pages});
    burst.sequences.push_back(sequence.number);
    sequence.queued += static_cast<std::int32_t>(steps);
  }
  rows.fill(now, work.state);
  mark_seen(fresh, rows.seen());
  mark_forbidden(work, 0, rows.forbidden());
  for (std::int64_t n = 0; n < steps; ++n) step.run();
  burst.results = rows.results(steps);
  counts_.steps += steps;
  counts_.rows += steps * count;
  if (!work.waiting.empty()) {
    counts_.steps_while_waiting += steps;
    counts_.rows_while_waiting += steps * count;
  }
  counts_.queued_behind += work.queued.empty() ? 0 : 1;
  work.steps_since_start += steps;
  work.state = rows.state();
  work.queued.push_back(std::move(burst));
  return true;
}

// Waits for the oldest burst and takes its tokens.
void Engine::examine_burst(Work& work) {
  const auto burst = std::move(work.queued.front());
  work.queued.pop_front();
  burst.results.wait();
  std::map<std::uint64_t, std::size_t> slots;
  for (std::size_t slot = 0; slot < work.running.size(); ++slot)
    slots.emplace(work.running[slot].number, slot);
  std::vector<std::size_t> ended;
  for (auto row = burst.sequences.size(); row-- > 0;) {
    const auto slot = slots.find(burst.sequences[row]);
    if (slot == slots.end()) continue;  // it ended in the burst before
    auto& sequence = work.running[slot->second];
    sequence.queued -= static_cast<std::int32_t>(burst.steps);
    for (std::int64_t n = 0; n < burst.steps; ++n) {
      ++sequence.position;
      if (!append_token(work, sequence, burst.results.token(n, row),
                        burst.results.log_prob(n, row)))
        continue;
      ended.push_back(slot->second);
      break;
    }
  }
  // The last sequence moves into a free slot.
  std::ranges::sort(ended, std::greater<>());
  for (const auto slot : ended) finish_sequence(work, slot);
}

}  // namespace mgpu::rollout
