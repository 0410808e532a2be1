#include "runtime/train/handover.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <tuple>

#include "rendezvous/base/json_field.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::train {
namespace {

constexpr const char* kStateForNewRank = "broadcast of the state for a new rank";

// Calls visit(number) for the numbers of an interval, apart from its list.
template <class Interval, class Visit>
void visit_numbers(Interval& i, Visit visit) {
  for (auto* whole :
       {&i.step, &i.total_steps, &i.target_tokens, &i.tokens, &i.examples, &i.steps, &i.skipped})
    visit(*whole);
  for (auto* real : {&i.epoch, &i.learning_rate, &i.grad_norm, &i.loss_sum, &i.correct,
                     &i.entropy_sum, &i.comm_seconds, &i.flops, &i.loss_scale})
    visit(*real);
}

}  // namespace

int source_of_state(std::span<const RankPosition> positions) {
  const auto best = std::ranges::max_element(positions, {}, [](const RankPosition& position) {
    return std::tuple(position.steps, -position.follow_ups);
  });
  if (best == positions.end() || best->steps == RankPosition::kNew)
    throw std::runtime_error("no rank is left that has the state of the training");
  return static_cast<int>(best - positions.begin());
}

std::vector<RankPosition> gather_positions(comm::Comm& comm, const RankPosition& own,
                                           at::Device device) {
  std::int64_t numbers[] = {own.steps, own.follow_ups};
  const auto mine = at::from_blob(numbers, {2}, at::kLong).to(device, at::kLong, false, true);
  auto all = at::empty({2 * comm.world()}, mine.options());
  comm.all_gather(all, mine, "all-gather of the ranks' positions").wait();
  all = all.to(at::kCPU);
  const auto* values = all.const_data_ptr<std::int64_t>();
  std::vector<RankPosition> positions;
  for (int rank = 0; rank < comm.world(); ++rank)
    positions.push_back({values[2 * rank], values[2 * rank + 1]});
  return positions;
}

void share_training_state(Learner& learner, int from) {
  auto& comm = learner.comm();
  const auto share = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.numel() == 0) return;
    comm.broadcast(tensor.view({-1}).view(at::kByte), from, kStateForNewRank).wait();
  };
  share(learner.shards().trained_weights());
  for (const auto& fragment : learner.optimizer().states())
    for (const auto& vector : fragment.vectors) {
      share(vector.stored.values);
      share(vector.stored.scales);
    }
}

std::string bytes_of(const Interval& interval) {
  std::string bytes;
  const auto add = [&](const auto& number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  visit_numbers(interval, add);
  for (const auto memory : interval.rank_memory) add(memory);
  return bytes;
}

Interval interval_of(const std::string& bytes) {
  Interval interval;
  std::size_t at = 0;
  const auto take = [&](auto& number) {
    if (bytes.size() - at < sizeof number)
      throw std::runtime_error("the state for a new rank is incomplete");
    std::memcpy(&number, bytes.data() + at, sizeof number);
    at += sizeof number;
  };
  visit_numbers(interval, take);
  while (at < bytes.size()) take(interval.rank_memory.emplace_back());
  return interval;
}

std::int64_t last_logged_step(const std::string& log_history) {
  std::int64_t last = 0;
  for (const auto& entry : rendezvous::parse_untrusted_json(log_history))
    if (entry.is_object() && entry.contains("loss")) {
      std::int64_t step = 0;
      rendezvous::read_field(entry, "step", step);
      last = std::max(last, step);
    }
  return last;
}

}  // namespace mgpu::train
