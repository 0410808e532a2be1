#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "runtime/kernels/paged.hpp"

namespace mgpu::rollout {

// The number of pages for `tokens` tokens.
inline std::int64_t pages_in(std::int64_t tokens) {
  return (tokens + ops::kPageTokens - 1) / ops::kPageTokens;
}

// Tracks the free pages of the KV cache and the number of sequences that use each of the others.
// Page 0 is never allocated: the padding rows of a batch write there.
class PagePool {
 public:
  explicit PagePool(std::int64_t pages) : references_(static_cast<std::size_t>(pages), 0) {
    for (auto page = static_cast<std::int32_t>(pages) - 1; page > 0; --page) free_.push_back(page);
  }

  std::size_t free() const { return free_.size(); }

  // Returns a page with one reference.
  std::int32_t allocate() {
    if (free_.empty()) throw std::logic_error("no KV cache page is free");
    const auto page = free_.back();
    free_.pop_back();
    references_[static_cast<std::size_t>(page)] = 1;
    return page;
  }
  // Adds a reference.
  void share(std::int32_t page) { ++references(page); }
  // Removes a reference; the page becomes free with the last one.
  void release(std::int32_t page) {
    if (--references(page) == 0) free_.push_back(page);
  }

 private:
  std::int32_t& references(std::int32_t page) {
    auto& count = references_.at(static_cast<std::size_t>(page));
    if (count == 0) throw std::logic_error("the KV cache page is not allocated");
    return count;
  }

  std::vector<std::int32_t> free_;
  std::vector<std::int32_t> references_;
};

}  // namespace mgpu::rollout
