#include "runtime/train/consistency.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

namespace mgpu::train {
namespace {

constexpr std::int64_t kAtOnce = 1 << 22;  // elements converted to int64 at a time
constexpr std::int64_t kPeriod = 8191;     // positions are weighted by 1 + position mod this

at::ScalarType bits_type(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 8:
      return at::kLong;
    case 4:
      return at::kInt;
    case 2:
      return at::kShort;
    default:
      return at::kByte;
  }
}

// The value that more than half of the ranks have, if any.
std::optional<std::pair<std::int64_t, std::int64_t>> majority(
    const std::vector<std::pair<std::int64_t, std::int64_t>>& values) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> votes;
  for (const auto& value : values)
    if (++votes[value] * 2 > values.size()) return value;
  return std::nullopt;
}

std::string difference_message(const std::vector<Difference>& found,
                               const std::vector<std::string>& names, std::size_t world,
                               std::int64_t step) {
  const auto& first = found.front();
  const bool no_majority = first.ranks.size() == world;
  const auto others =
      found.size() > 1 ? fmt::format(" (and {} other tensors)", found.size() - 1) : "";
  return fmt::format(
      "the ranks' copies are not identical after step {}: {}{} differs on rank{} {}{}, bit for "
      "bit; a device or its memory has failed there, or a program wrote into it; resume from the "
      "last checkpoint without that device",
      step, names[first.tensor], others, first.ranks.size() > 1 ? "s" : "",
      fmt::join(first.ranks, ", "), no_majority ? "" : " from the others");
}

}  // namespace

at::Tensor bit_checksum(const at::Tensor& tensor, at::Device where) {
  const auto flat = tensor.detach().reshape({-1}).view(bits_type(tensor));
  auto total = at::zeros({2}, at::TensorOptions(where).dtype(at::kLong));
  for (std::int64_t begin = 0; begin < flat.size(0); begin += kAtOnce) {
    const auto size = std::min(kAtOnce, flat.size(0) - begin);
    const auto bits = flat.narrow(0, begin, size).to(where).to(at::kLong);
    const auto place =
        at::arange(begin, begin + bits.size(0), bits.options()).remainder_(kPeriod).add_(1);
    total.add_(at::stack({bits.sum(), at::mul(bits, place).sum()}));
  }
  return total;
}

std::vector<Difference> compare_checksums(const std::vector<std::vector<std::int64_t>>& sums) {
  std::vector<Difference> found;
  for (std::size_t tensor = 0; 2 * tensor < sums.front().size(); ++tensor) {
    std::vector<std::pair<std::int64_t, std::int64_t>> values;
    for (const auto& of_rank : sums)
      values.emplace_back(of_rank[2 * tensor], of_rank[2 * tensor + 1]);
    if (std::all_of(values.begin(), values.end(), [&](auto v) { return v == values.front(); }))
      continue;
    const auto most = majority(values);
    Difference difference{tensor, {}};
    for (std::size_t rank = 0; rank < values.size(); ++rank)
      if (!most || values[rank] != *most) difference.ranks.push_back(static_cast<int>(rank));
    found.push_back(std::move(difference));
  }
  return found;
}

void check_consistency(parallel::Shards& shards, comm::Comm& comm, std::int64_t step) {
  std::vector<std::string> names;
  std::vector<at::Tensor> sums;
  const auto add = [&](const char* kind, const std::string& name, const at::Tensor& value) {
    names.push_back(fmt::format("{} {}", kind, name));
    sums.push_back(bit_checksum(value, shards.device()));
  };
  // Gradients come first because the first difference is reported: a wrong gradient also makes the
  // weight wrong.
  if (!shards.sharded())
    for (const auto& own : shards.owned()) add("the gradient of", own.fragment.name, own.grad);
  for (const bool trained : {true, false})
    shards.visit(trained, [&](const std::string& name, const at::Tensor& value) {
      add("parameter", name, value);
    });
  const auto mine = at::stack(sums).reshape({-1});
  const auto world = comm.world();
  const auto all = at::empty({world * mine.size(0)}, mine.options());
  comm.all_gather(all, mine, "all-gather of the consistency check").wait();
  const auto host = all.to(at::kCPU);
  const auto* begin = host.const_data_ptr<std::int64_t>();
  std::vector<std::vector<std::int64_t>> of_ranks;
  for (int rank = 0; rank < world; ++rank)
    of_ranks.emplace_back(begin + rank * mine.size(0), begin + (rank + 1) * mine.size(0));
  const auto found = compare_checksums(of_ranks);
  if (!found.empty())
    throw std::runtime_error(
        difference_message(found, names, static_cast<std::size_t>(world), step));
}

}  // namespace mgpu::train
