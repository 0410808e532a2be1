#include "runtime/data/collate.hpp"

#include <limits>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::data {

Batch collate(const Dataset& dataset, std::span<const std::uint32_t> examples) {
  if (examples.empty()) return batch_without_work();
  std::size_t tokens = 0;
  for (const std::uint32_t example : examples) tokens += dataset.lengths()[example];
  if (tokens > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw rendezvous::InputError(fmt::format(
        "a micro-batch of {} tokens is too large; lower the batch size or max_length", tokens));
  BatchBuilder batch;
  batch.reserve(tokens, examples.size());
  for (const std::uint32_t example : examples) {
    const auto sequence = dataset[example];
    batch.add({sequence.ids});
    for (std::size_t i = 0; i + 1 < sequence.ids.size(); ++i)
      batch.set_target(i, sequence.label(i + 1));
  }
  return batch.take();
}

}  // namespace mgpu::data
