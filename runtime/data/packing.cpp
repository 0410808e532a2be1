#include "runtime/data/packing.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace mgpu::data {

namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFF;

// The bins that are not full, indexed by their free space. A bit per possible amount of free space
// makes it fast to find the smallest sufficient amount.
class FreeSpaceIndex {
 public:
  explicit FreeSpaceIndex(std::uint32_t capacity)
      : newest_(capacity + 1, kNone), occupied_(capacity / 64 + 1) {}

  // Removes and returns the bin with the least free space of at least `length`, or kNone.
  std::uint32_t take(std::uint32_t length) {
    std::size_t word = length / 64;
    std::uint64_t bits = occupied_[word] & ~std::uint64_t{0} << length % 64;
    while (bits == 0) {
      if (++word == occupied_.size()) return kNone;
      bits = occupied_[word];
    }
    const auto space =
        static_cast<std::uint32_t>(word * 64) + static_cast<std::uint32_t>(std::countr_zero(bits));
    const std::uint32_t bin = newest_[space];
    newest_[space] = older_[bin];
    if (newest_[space] == kNone) occupied_[word] &= ~(std::uint64_t{1} << space % 64);
    return bin;
  }

  void put(std::uint32_t bin, std::uint32_t space) {
    if (bin >= older_.size()) older_.resize(bin + 1, kNone);
    older_[bin] = newest_[space];
    newest_[space] = bin;
    occupied_[space / 64] |= std::uint64_t{1} << space % 64;
  }

 private:
  std::vector<std::uint32_t> newest_;  // per amount of free space: the bin that was added last
  std::vector<std::uint32_t> older_;   // per bin: the one added before it with the same free space
  std::vector<std::uint64_t> occupied_;
};

void pack_window(std::span<const std::uint32_t> order, std::span<const std::uint32_t> lengths,
                 std::uint32_t capacity, Items& out) {
  std::vector<std::uint32_t> sorted(order.begin(), order.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return lengths[a] > lengths[b]; });
  FreeSpaceIndex free_space(capacity);
  std::vector<std::uint32_t> space_left;  // free space in each bin
  std::vector<std::uint32_t> bin_of(sorted.size());
  std::vector<std::uint32_t> counts;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const std::uint32_t length = lengths[sorted[i]];
    if (length > capacity) throw std::logic_error("an example is longer than a bin");
    std::uint32_t bin = free_space.take(length);
    if (bin == kNone) {
      bin = static_cast<std::uint32_t>(space_left.size());
      space_left.push_back(capacity);
      counts.push_back(0);
    }
    space_left[bin] -= length;
    free_space.put(bin, space_left[bin]);
    bin_of[i] = bin;
    ++counts[bin];
  }

  std::vector<std::uint32_t> next;  // index for the next example of each bin
  auto end = static_cast<std::uint32_t>(out.examples.size());
  for (const std::uint32_t count : counts) {
    next.push_back(end);
    end += count;
    out.starts.push_back(end);
  }
  out.examples.resize(end);
  for (std::size_t i = 0; i < sorted.size(); ++i) out.examples[next[bin_of[i]]++] = sorted[i];
}

}  // namespace

Items singles(std::span<const std::uint32_t> order) {
  Items items;
  items.examples.assign(order.begin(), order.end());
  items.starts.resize(order.size() + 1);
  for (std::size_t i = 0; i <= order.size(); ++i) items.starts[i] = static_cast<std::uint32_t>(i);
  return items;
}

Items pack(std::span<const std::uint32_t> order, std::span<const std::uint32_t> lengths,
           std::uint32_t capacity, std::size_t window) {
  Items items;
  for (std::size_t at = 0; at < order.size(); at += window)
    pack_window(order.subspan(at, std::min(window, order.size() - at)), lengths, capacity, items);
  return items;
}

Items pack_in_order(std::span<const std::uint32_t> order, std::span<const std::uint32_t> lengths,
                    std::uint32_t capacity) {
  Items items;
  items.examples.assign(order.begin(), order.end());
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::uint32_t length = lengths[order[i]];
    if (length > capacity) throw std::logic_error("an example is longer than a bin");
    if (used > 0 && used + length > capacity) {
      items.starts.push_back(static_cast<std::uint32_t>(i));
      used = 0;
    }
    used += length;
  }
  if (!order.empty()) items.starts.push_back(static_cast<std::uint32_t>(order.size()));
  return items;
}

Items rearranged(const Items& items, std::span<const std::uint32_t> order) {
  Items out;
  out.examples.reserve(items.examples.size());
  out.starts.reserve(items.starts.size());
  for (const std::uint32_t i : order) out.add(items[i]);
  return out;
}

}  // namespace mgpu::data
