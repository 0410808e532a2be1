#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mgpu::data {

// What a step counts: single examples, or bins of examples that share a length.
struct Items {
  std::vector<std::uint32_t> examples;
  std::vector<std::uint32_t> starts{0};  // of each item among the examples, and the end

  std::size_t size() const { return starts.size() - 1; }
  std::span<const std::uint32_t> operator[](std::size_t i) const {
    return std::span(examples).subspan(starts[i], starts[i + 1] - starts[i]);
  }
  void add(std::span<const std::uint32_t> item) {
    examples.insert(examples.end(), item.begin(), item.end());
    starts.push_back(static_cast<std::uint32_t>(examples.size()));
  }
};

// Every example an item of its own.
Items singles(std::span<const std::uint32_t> order);

// Bins of at most `capacity` tokens by best-fit decreasing: of every `window` examples of the
// order, the longest first, each into the fullest bin that has room. No example is cut or lost;
// `lengths` are of all examples, and none that is packed is above the capacity.
Items pack(std::span<const std::uint32_t> order, std::span<const std::uint32_t> lengths,
           std::uint32_t capacity, std::size_t window = 16384);

// The items of `items` in the order that `order` names them.
Items rearranged(const Items& items, std::span<const std::uint32_t> order);

}  // namespace mgpu::data
