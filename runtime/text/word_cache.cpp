#include "runtime/text/word_cache.hpp"

#include <algorithm>

namespace mgpu::text {

std::size_t WordCache::place_of(std::string_view word, std::uint64_t hash) const {
  std::size_t place = hash % kSlots;
  for (; slots_[place].size != 0; place = (place + 1) % kSlots) {
    const Slot& slot = slots_[place];
    if (slot.hash == hash && std::string_view(words_).substr(slot.word, slot.size) == word) break;
  }
  return place;
}

std::span<const std::int32_t> WordCache::find(std::string_view word, std::uint64_t hash) const {
  const Slot& slot = slots_[place_of(word, hash)];
  if (slot.size == 0) return {};
  return {ids_.data() + slot.first, slot.count};
}

void WordCache::put(std::string_view word, std::uint64_t hash, std::span<const std::int32_t> ids) {
  if (word.empty() || word.size() > kLongest || ids.size() > kLongest) return;
  if (size_ * 2 >= kSlots) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    words_.clear();
    ids_.clear();
    size_ = 0;
  }
  slots_[place_of(word, hash)] = {
      hash, static_cast<std::uint32_t>(words_.size()), static_cast<std::uint32_t>(ids_.size()),
      static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(ids.size())};
  words_ += word;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++size_;
}

}  // namespace mgpu::text
