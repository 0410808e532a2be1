#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/hash.hpp"

namespace mgpu::text {

// A cache of the ids of short words. Its size is bounded: when full, it is cleared.
class WordCache {
 public:
  static constexpr std::size_t kLongest = 64;  // bytes; longer words are repeated too rarely

  // Appends the ids of the word to `ids`. If they are not cached, `encode` appends them.
  template <class Encode>
  void append(std::string_view word, std::vector<std::int32_t>& ids, const Encode& encode) {
    if (word.size() > kLongest) return encode();
    const std::uint64_t hash = hash_of(word);
    if (const auto known = find(word, hash); known.data()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return;
    }
    const std::size_t before = ids.size();
    encode();
    put(word, hash, std::span(ids).subspan(before));
  }

  // The ids; data() is nullptr if the word is not cached. Valid until the next put.
  std::span<const std::int32_t> find(std::string_view word, std::uint64_t hash) const;

  // The word must not be cached yet.
  void put(std::string_view word, std::uint64_t hash, std::span<const std::int32_t> ids);

 private:
  static constexpr std::size_t kSlots = 1 << 16;
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t word = 0, first = 0;  // where its bytes and ids begin
    std::uint16_t size = 0, count = 0;  // a size of 0 is a free slot
  };
  std::size_t place_of(std::string_view word, std::uint64_t hash) const;

  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
  std::string words_;
  std::vector<std::int32_t> ids_;
  std::size_t size_ = 0;
};

}  // namespace mgpu::text
