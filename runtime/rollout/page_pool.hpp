#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "runtime/kernels/paged.hpp"

namespace mgpu::rollout {

// Pages that so many tokens take.
inline std::int64_t pages_in(std::int64_t tokens) {
  return (tokens + ops::kPageTokens - 1) / ops::kPageTokens;
}

// Which pages of the cache are free, and how many sequences hold each of the others. Page 0 is
// nobody's: rows of a batch that stand for no sequence write there.
class PagePool {
 public:
  explicit PagePool(std::int64_t pages) : holders_(static_cast<std::size_t>(pages), 0) {
    for (auto page = static_cast<std::int32_t>(pages) - 1; page > 0; --page) free_.push_back(page);
  }

  std::size_t free() const { return free_.size(); }

  // A page whose one holder is the caller.
  std::int32_t take() {
    if (free_.empty()) throw std::logic_error("no page is free");
    const auto page = free_.back();
    free_.pop_back();
    holders_[static_cast<std::size_t>(page)] = 1;
    return page;
  }
  // The page has one more holder.
  void share(std::int32_t page) { ++holders(page); }
  // It has one less, and is free after the last.
  void give(std::int32_t page) {
    if (--holders(page) == 0) free_.push_back(page);
  }

 private:
  std::int32_t& holders(std::int32_t page) {
    auto& count = holders_.at(static_cast<std::size_t>(page));
    if (count == 0) throw std::logic_error("nobody holds the page");
    return count;
  }

  std::vector<std::int32_t> free_;
  std::vector<std::int32_t> holders_;
};

}  // namespace mgpu::rollout
