#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace mgpu::text {

inline std::uint64_t mixed(std::uint64_t x) {
  x *= 0x9E3779B97F4A7C15u;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93u;
  return x ^ x >> 32;
}

inline std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = text.size();
  while (text.size() >= 8) {
    std::uint64_t eight;
    std::memcpy(&eight, text.data(), 8);
    hash = mixed(hash ^ eight);
    text.remove_prefix(8);
  }
  std::uint64_t rest = 0;
  if (!text.empty()) std::memcpy(&rest, text.data(), text.size());
  return mixed(hash ^ rest);
}

// A hash map with 64-bit keys, optimized for lookups. The key ~0 is not allowed.
template <class Value>
class IntMap {
 public:
  explicit IntMap(std::size_t expected = 0) : slots_(std::bit_ceil(expected * 2 + 2)), size_(0) {}

  const Value* find(std::uint64_t key) const {
    const Slot& slot = slots_[place_of(key)];
    return slot.key == key ? &slot.value : nullptr;
  }

  // The value of a key; inserts a new value if the key is new. The reference is valid until the
  // next insertion.
  Value& operator[](std::uint64_t key) {
    std::size_t place = place_of(key);
    if (slots_[place].key == key) return slots_[place].value;
    if (++size_ * 2 > slots_.size()) {
      grow();
      place = place_of(key);
    }
    slots_[place].key = key;
    return slots_[place].value;
  }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kFree;
    Value value{};
  };

  std::size_t place_of(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t place = mixed(key) & mask;
    while (slots_[place].key != key && slots_[place].key != kFree) place = (place + 1) & mask;
    return place;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kFree) slots_[place_of(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_;
};

}  // namespace mgpu::text
