#include "runtime/text/word_counts.hpp"

#include <algorithm>

#include "runtime/text/hash.hpp"

namespace mgpu::text {

WordCounts::Slot& WordCounts::slot_of(std::string_view word, std::uint64_t hash) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t place = hash & mask;; place = (place + 1) & mask) {
    Slot& slot = slots_[place];
    if (slot.count == 0 || (slot.hash == hash && this->word(slot) == word)) return slot;
  }
}

void WordCounts::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.count == 0) continue;
    std::size_t place = slot.hash & mask;
    while (slots_[place].count != 0) place = (place + 1) & mask;
    slots_[place] = slot;
  }
}

void WordCounts::add(std::string_view word, std::int64_t times) {
  if (times == 0) return;
  const auto hash = hash_of(word);
  Slot* slot = &slot_of(word, hash);
  if (slot->count == 0) {
    if (++size_ * 2 > slots_.size()) {
      grow();
      slot = &slot_of(word, hash);
    }
    *slot = {.hash = hash, .begin = bytes_.size(), .size = word.size(), .count = 0};
    bytes_ += word;
  }
  slot->count += times;
}

void WordCounts::add(const WordCounts& others) {
  for (const Slot& slot : others.slots_) {
    if (slot.count > 0) add(others.word(slot), slot.count);
  }
}

std::vector<std::pair<std::string_view, std::int64_t>> WordCounts::sorted() const {
  std::vector<std::pair<std::string_view, std::int64_t>> all;
  all.reserve(size_);
  for (const Slot& slot : slots_) {
    if (slot.count > 0) all.emplace_back(word(slot), slot.count);
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace mgpu::text
