#include "launcher/memory/held_memory.hpp"

#include <algorithm>

namespace mgpu::launcher {

std::uint64_t HeldMemory::update(const RankMemory& memory, std::uint64_t limit,
                                 const std::function<std::uint64_t()>& exact) {
  const auto sum = memory.total();
  // The trend of a rank's memory begins at 70 %.
  if (memory.children.empty() || sum < limit / 10 * 7) {
    exact_ = 0;
    return sum;
  }
  if (exact_ != 0 && exact_ < limit) {
    exact_ = std::min(exact_, sum);
    sum_ = std::min(sum_, sum);
    const auto grown = std::max(memory.own, exact_ + (sum - sum_));
    if (grown < exact_ + (limit - exact_) / 2) return grown;
  }
  exact_ = exact();
  sum_ = sum;
  return std::max(memory.own, exact_);
}

}  // namespace mgpu::launcher
