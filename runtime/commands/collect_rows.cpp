#include "runtime/commands/collect_rows.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace mgpu::recipes {

std::vector<std::string> collect_rows(comm::Comm& comm, std::vector<std::string> mine,
                                      std::size_t rows) {
  const auto world = static_cast<std::size_t>(comm.world());
  const auto rank = static_cast<std::size_t>(comm.rank());
  if (world == 1) return mine;
  const at::Tensor sizes = at::zeros({static_cast<std::int64_t>(rows)}, at::kLong);
  auto* size = sizes.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < mine.size(); ++i)
    size[rank + i * world] = static_cast<std::int64_t>(mine[i].size());
  comm.all_reduce(sizes, "all-reduce of the sizes of completions").wait();

  std::vector<std::int64_t> bytes(world, 0);
  for (std::size_t i = 0; i < rows; ++i) bytes[i % world] += size[i];
  const auto part = std::max<std::int64_t>(1, *std::max_element(bytes.begin(), bytes.end()));
  const at::Tensor all = at::zeros({static_cast<std::int64_t>(world) * part}, at::kByte);
  const at::Tensor own = at::zeros({part}, at::kByte);
  auto* to = own.data_ptr<std::uint8_t>();
  for (const auto& text : mine) to = std::copy(text.begin(), text.end(), to);
  comm.all_gather(all, own, "all-gather of completions").wait();

  std::vector<std::string> texts;
  std::vector<const char*> from;
  for (std::size_t r = 0; r < world; ++r)
    from.push_back(reinterpret_cast<const char*>(all.const_data_ptr<std::uint8_t>()) +
                   static_cast<std::int64_t>(r) * part);
  for (std::size_t i = 0; i < rows; ++i) {
    texts.emplace_back(from[i % world], static_cast<std::size_t>(size[i]));
    from[i % world] += size[i];
  }
  return texts;
}

}  // namespace mgpu::recipes
