#include "runtime/rollout/rows.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "runtime/rollout/to_tensor.hpp"

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

Rows::Rows(const RowsShape& shape, at::Device device) : shape_(shape), device_(device) {
  const auto where = at::TensorOptions(device);
  const auto ints = where.dtype(at::kInt);
  input_ = {at::zeros({shape.rows}, ints), at::zeros({shape.rows}, ints),
            at::zeros({shape.rows, shape.pages}, ints)};
  draw_ = {at::zeros({shape.rows}, where.dtype(at::kLong)), at::zeros({shape.rows}, ints),
           input_.tokens, at::empty({shape.rows}, where.dtype(at::kFloat))};
  if (shape.vocabulary > 0)
    seen_ = at::zeros({shape.rows, shape.vocabulary}, where.dtype(at::kBool));
  if (shape.restricted > 0)
    forbidden_ = at::zeros({shape.rows, shape.restricted}, where.dtype(at::kBool));
  tokens_ = at::empty({shape.burst, shape.rows}, ints);
  log_probs_ = at::empty({shape.burst, shape.rows}, draw_.log_probs.options());
  step_ = at::zeros({1}, where.dtype(at::kLong));
}

void Rows::fill(const std::vector<Row>& rows) {
  const auto count = static_cast<std::size_t>(shape_.rows);
  std::size_t width = 1;  // only as many columns are sent as there are pages
  for (const auto& row : rows) width = std::max(width, row.pages->size());
  std::vector<std::int32_t> tokens(count), positions(count), drawn(count), table(count * width);
  std::vector<std::int64_t> seeds(count);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    tokens[i] = row.token;
    positions[i] = row.position;
    drawn[i] = row.drawn;
    seeds[i] = row.seed;
    std::copy(row.pages->begin(), row.pages->end(),
              table.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  input_.tokens.copy_(to_tensor(tokens, at::kCPU));
  input_.positions.copy_(to_tensor(positions, at::kCPU));
  const auto columns = static_cast<std::int64_t>(width);
  input_.table.zero_();
  input_.table.narrow(1, 0, columns).copy_(to_tensor(table, at::kCPU).view({shape_.rows, columns}));
  draw_.seeds.copy_(to_tensor(seeds, at::kCPU));
  draw_.counters.copy_(to_tensor(drawn, at::kCPU));
  step_.zero_();
}

void Rows::advance() {
  tokens_.index_copy_(0, step_, draw_.tokens.unsqueeze(0));
  log_probs_.index_copy_(0, step_, draw_.log_probs.unsqueeze(0));
  step_.add_(1);
  // -1 marks logits without a finite softmax. The host reports it; the embedding must not get it.
  draw_.tokens.clamp_min_(0);
  if (seen_.defined()) seen_.scatter_(1, draw_.tokens.to(at::kLong).unsqueeze(1), 1);
  input_.positions.add_(1);
  draw_.counters.add_(1);
}

Rows::Results Rows::results() const {
  return {shape_.rows, tokens_.cpu(), log_probs_.cpu()};
}

}  // namespace mgpu::rollout
