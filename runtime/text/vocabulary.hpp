#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::text {

// Maps token texts to ids and ids to texts. Ids may have gaps.
class Vocabulary {
 public:
  static constexpr std::int32_t kHighestId =
      (1 << 22) - 1;  // limits the memory that a file can make us allocate

  // Limits the ids to those that a vocabulary of this many bytes of JSON can need.
  void limit_ids(std::size_t bytes);
  void reserve(std::size_t tokens);
  // Throws if the token or the id exists already, or if the id is out of range.
  void add(std::string token, std::int64_t id);

  std::optional<std::int32_t> find(std::string_view token) const;
  // The token, or nullptr if the id is not used.
  const std::string* token(std::int32_t id) const;

  std::size_t count() const { return count_; }
  std::int32_t end() const { return static_cast<std::int32_t>(tokens_.size()); }  // highest id + 1

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t id = -1;
  };
  std::size_t place_of(std::string_view token, std::uint64_t hash) const;
  void rehash(std::size_t slots);

  std::vector<std::string> tokens_;
  std::vector<bool> taken_;
  std::vector<Slot> slots_ = std::vector<Slot>(16);
  std::size_t count_ = 0;
  std::int32_t highest_ = kHighestId;
};

}  // namespace mgpu::text
