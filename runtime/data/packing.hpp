#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mgpu::data {

// The items of a step: single examples, or bins of examples packed together.
struct Items {
  std::vector<std::uint32_t> examples;
  std::vector<std::uint32_t> starts{0};  // where each item begins in `examples`, and the end

  std::size_t size() const { return starts.size() - 1; }
  std::span<const std::uint32_t> operator[](std::size_t i) const {
    return std::span(examples).subspan(starts[i], starts[i + 1] - starts[i]);
  }
  void add(std::span<const std::uint32_t> item) {
    examples.insert(examples.end(), item.begin(), item.end());
    starts.push_back(static_cast<std::uint32_t>(examples.size()));
  }
};

// Makes every example its own item.
Items singles(std::span<const std::uint32_t> order);

// Packs examples into bins of at most `capacity` tokens by best-fit decreasing: within every
// `window` examples of the order, the longest first, each into the fullest bin with enough space.
// No example is cut or lost. `lengths` has the lengths of all examples; a packed example must not
// exceed the capacity.
Items pack(std::span<const std::uint32_t> order, std::span<const std::uint32_t> lengths,
           std::uint32_t capacity, std::size_t window = 16384);

// Packs examples into bins in their order: a bin ends before the first example that does not fit.
Items pack_in_order(std::span<const std::uint32_t> order, std::span<const std::uint32_t> lengths,
                    std::uint32_t capacity);

// The items in the given order of indices.
Items rearranged(const Items& items, std::span<const std::uint32_t> order);

}  // namespace mgpu::data
