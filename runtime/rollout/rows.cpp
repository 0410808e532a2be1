#include "runtime/rollout/rows.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>

namespace mgpu::rollout {

std::int64_t rows_for(std::int64_t count, std::int64_t max_count, at::Device device) {
  if (!device.is_cuda()) return count;
  // 1, 2, 4, 8, 16, then two sizes per doubling: 24, 32, 48, 64 ...
  std::int64_t rows = 1;
  while (rows < count) {
    const bool power = (rows & (rows - 1)) == 0;
    rows = rows < 16 ? rows * 2 : power ? rows / 2 * 3 : rows / 3 * 4;
  }
  return std::min(rows, std::max(max_count, count));
}

std::int64_t table_pages_for(std::int64_t count, std::int64_t max_count) {
  // The most with which attention on Hopper does not divide many sequences; see splits_of().
  std::int64_t pages = 127;
  while (pages < count) pages *= 2;
  return std::min(pages, max_count);
}

std::int64_t rows_for_few_steps(std::int64_t rows, const std::vector<std::int64_t>& recorded,
                                at::ScalarType dtype) {
  // In 16 bits a step mostly reads weights: on an H200 with 1.5B it takes 7 % longer with 64 rows
  // than with one. In fp32 it mostly multiplies.
  constexpr std::int64_t kSameTime = 64;
  if (c10::elementSize(dtype) != 2) return rows;
  const auto next = std::ranges::lower_bound(recorded, rows);
  return next != recorded.end() && *next <= kSameTime ? *next : rows;
}

// The inputs of a burst in one piece of memory, int32. Each begins at a multiple of 256 bytes.
struct Rows::Inputs {
  Tensor step, seeds;   // int64
  Tensor advancing;     // [2, rows]: counters and positions
  Tensor staged, from;  // [rows]
  Tensor table;

  Inputs(const Tensor& block, const RowsShape& shape) {
    std::int64_t next = 0;
    const auto take = [&](std::int64_t size) {
      const auto part = block.narrow(0, next, size);
      next += padded(size);
      return part;
    };
    step = take(2).view(at::kLong);
    seeds = take(2 * shape.rows).view(at::kLong);
    advancing = take(2 * padded(shape.rows)).view({2, -1}).narrow(1, 0, shape.rows);
    staged = take(shape.rows);
    from = take(shape.rows);
    table = take(shape.rows * shape.pages).view({shape.rows, shape.pages});
  }
  static std::int64_t padded(std::int64_t size) { return (size + 63) / 64 * 64; }
  static std::int64_t size(const RowsShape& shape) {
    return padded(2) + padded(2 * shape.rows) + 4 * padded(shape.rows) +
           padded(shape.rows * shape.pages);
  }
};

Rows::Rows(const RowsShape& shape, at::Device device) : shape_(shape), device_(device) {
  const auto where = at::TensorOptions(device);
  const auto ints = where.dtype(at::kInt);
  block_ = at::zeros({Inputs::size(shape)}, ints);
  const Inputs inputs(block_, shape);
  step_ = inputs.step;
  staged_ = inputs.staged;
  from_ = inputs.from;
  advancing_ = inputs.advancing;
  sampled_ = at::zeros({2, shape.rows}, ints);
  input_ = {sampled_.select(0, 0), inputs.advancing.select(0, 1), inputs.table};
  draw_ = {inputs.seeds, inputs.advancing.select(0, 0), input_.tokens,
           sampled_.view(at::kFloat).select(0, 1)};
  if (shape.vocabulary > 0)
    seen_ = at::zeros({shape.rows, shape.vocabulary}, where.dtype(at::kBool));
  if (shape.restricted > 0)
    forbidden_ = at::zeros({shape.rows, shape.restricted}, where.dtype(at::kBool));
  values_ = at::empty({shape.burst, 2, shape.rows}, ints);
}

void Rows::fill(const std::vector<Row>& rows, const State& before) {
  // Fresh memory each time: an earlier copy may be pending, and the allocator does not reuse its
  // memory before.
  const auto block =
      at::empty({block_.numel()}, at::TensorOptions(at::kInt).pinned_memory(device_.is_cuda()));
  std::memset(block.data_ptr(), 0, block.nbytes());
  const Inputs inputs(block, shape_);
  auto* seeds = inputs.seeds.data_ptr<std::int64_t>();
  auto* counters = inputs.advancing.select(0, 0).data_ptr<std::int32_t>();
  auto* positions = inputs.advancing.select(0, 1).data_ptr<std::int32_t>();
  auto* staged = inputs.staged.data_ptr<std::int32_t>();
  auto* from = inputs.from.data_ptr<std::int32_t>();
  auto* table = inputs.table.data_ptr<std::int32_t>();
  const auto others = before.tokens.defined() ? before.tokens.size(0) : 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(shape_.rows); ++i) {
    from[i] = static_cast<std::int32_t>(others + static_cast<std::int64_t>(i));
    if (i >= rows.size()) continue;
    const auto& row = rows[i];
    seeds[i] = row.seed;
    counters[i] = row.drawn;
    positions[i] = row.position;
    staged[i] = row.token;
    if (row.from != kNew) from[i] = row.from;
    std::copy(row.pages->begin(), row.pages->end(),
              table + static_cast<std::int64_t>(i) * shape_.pages);
  }
  block_.copy_(block, /*non_blocking=*/true);
  take_over(rows, before);
}

// Takes the state of sequences that go on from the burst before.
void Rows::take_over(const std::vector<Row>& rows, const State& before) {
  bool any = false, same = before.tokens.is_same(input_.tokens);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    any = any || rows[i].from != kNew;
    same = same && rows[i].from == static_cast<std::int32_t>(i);
  }
  if (same) return;  // advance() has left it here
  if (!any) {
    input_.tokens.copy_(staged_);
    return;
  }
  input_.tokens.copy_(at::index_select(at::cat({before.tokens, staged_}), 0, from_));
  if (seen_.defined())  // new sequences and padding may get any row
    seen_.copy_(at::index_select(before.seen, 0, from_.clamp_max(before.seen.size(0) - 1)));
}

void Rows::advance() {
  values_.index_copy_(0, step_, sampled_.unsqueeze(0));
  step_.add_(1);
  // -1 marks logits without a finite softmax. The host reports it; the embedding must not get it.
  draw_.tokens.clamp_min_(0);
  if (seen_.defined()) seen_.scatter_(1, draw_.tokens.to(at::kLong).unsqueeze(1), 1);
  advancing_.add_(1);
}

Rows::Results Rows::results(std::int64_t steps) const {
  Results results;
  results.values_ = at::empty({steps, 2, shape_.rows},
                              at::TensorOptions(at::kInt).pinned_memory(device_.is_cuda()));
  results.log_probs_ = results.values_.view(at::kFloat);
  results.values_.copy_(values_.narrow(0, 0, steps), /*non_blocking=*/true);
  if (device_.is_cuda()) {
    results.copied_.emplace(device_.type());
    results.copied_->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  return results;
}

void Rows::Results::wait() const {
  if (copied_) copied_->synchronize();
}

}  // namespace mgpu::rollout
