#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/text/hash.hpp"

namespace mgpu::text {

// Words with ids, by their bytes: walks from the root through the bytes of a text.
class ByteTrie {
 public:
  static constexpr std::int32_t kRoot = 0;

  // Replaces the id of a word that was added before. An empty word is ignored.
  void add(std::string_view word, std::int32_t id) {
    if (word.empty()) return;
    std::int32_t node = kRoot;
    for (const char byte : word) {
      std::int32_t& next = steps_[key(node, byte)];
      if (next == 0) {
        next = static_cast<std::int32_t>(ids_.size());
        ids_.push_back(-1);
      }
      node = next;
    }
    ids_[static_cast<std::size_t>(node)] = id;
  }

  // The node after one more byte, or -1 if no word continues so.
  std::int32_t next(std::int32_t node, char byte) const {
    const std::int32_t* const found = steps_.find(key(node, byte));
    return found ? *found : -1;
  }

  // The id of the word that ends at a node, or -1.
  std::int32_t id(std::int32_t node) const { return ids_[static_cast<std::size_t>(node)]; }

 private:
  static std::uint64_t key(std::int32_t node, char byte) {
    return static_cast<std::uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
  }

  IntMap<std::int32_t> steps_;  // (node, byte) -> node
  std::vector<std::int32_t> ids_ = {-1};
};

}  // namespace mgpu::text
