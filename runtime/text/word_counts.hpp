#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mgpu::text {

// How often each word occurs in a text.
class WordCounts {
 public:
  void add(std::string_view word, std::int64_t times = 1);
  void add(const WordCounts& others);

  std::size_t size() const { return size_; }
  // The words in the order of their bytes. The views are valid until the next call of add().
  std::vector<std::pair<std::string_view, std::int64_t>> sorted() const;

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::size_t begin = 0, size = 0;  // of the word in bytes_
    std::int64_t count = 0;           // 0: a free slot
  };
  std::string_view word(const Slot& slot) const { return {bytes_.data() + slot.begin, slot.size}; }
  Slot& slot_of(std::string_view word, std::uint64_t hash);
  void grow();

  std::string bytes_;
  std::vector<Slot> slots_ = std::vector<Slot>(1 << 10);
  std::size_t size_ = 0;
};

}  // namespace mgpu::text
