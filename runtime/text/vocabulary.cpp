#include "runtime/text/vocabulary.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/hash.hpp"

namespace mgpu::text {

void Vocabulary::limit_ids(std::size_t bytes) {
  // Small files may have a few ids far above the others.
  constexpr std::size_t kSparse = 1 << 19;
  highest_ =
      static_cast<std::int32_t>(std::min<std::size_t>(kHighestId, std::max(kSparse, bytes / 4)));
}

void Vocabulary::reserve(std::size_t tokens) {
  tokens_.reserve(tokens);
  taken_.reserve(tokens);
  if (tokens * 2 > slots_.size()) rehash(std::bit_ceil(tokens * 2));
}

void Vocabulary::add(std::string token, std::int64_t id) {
  if (id < 0 || id > highest_) {
    throw rendezvous::InputError(
        fmt::format("token \"{}\" has id {}; ids must be from 0 to {}", token, id, highest_));
  }
  const auto at = static_cast<std::size_t>(id);
  if (at < taken_.size() && taken_[at]) {
    throw rendezvous::InputError(
        fmt::format("tokens \"{}\" and \"{}\" have the same id {}", tokens_[at], token, id));
  }
  if ((count_ + 1) * 2 > slots_.size()) rehash(slots_.size() * 2);
  const std::uint64_t hash = hash_of(token);
  Slot& slot = slots_[place_of(token, hash)];
  if (slot.id >= 0) {
    throw rendezvous::InputError(
        fmt::format("duplicate token \"{}\" with ids {} and {}", token, slot.id, id));
  }
  slot = {static_cast<std::uint32_t>(hash), static_cast<std::int32_t>(id)};
  if (at >= tokens_.size()) {
    tokens_.resize(at + 1);
    taken_.resize(at + 1);
  }
  tokens_[at] = std::move(token);
  taken_[at] = true;
  ++count_;
}

std::optional<std::int32_t> Vocabulary::find(std::string_view token) const {
  const Slot& slot = slots_[place_of(token, hash_of(token))];
  return slot.id < 0 ? std::nullopt : std::optional(slot.id);
}

const std::string* Vocabulary::token(std::int32_t id) const {
  if (id < 0 || id >= end() || !taken_[static_cast<std::size_t>(id)]) return nullptr;
  return &tokens_[static_cast<std::size_t>(id)];
}

std::size_t Vocabulary::place_of(std::string_view token, std::uint64_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t place = (hash >> 20) & mask;
  for (; slots_[place].id >= 0; place = (place + 1) & mask) {
    if (slots_[place].hash == static_cast<std::uint32_t>(hash) &&
        tokens_[static_cast<std::size_t>(slots_[place].id)] == token) {
      break;
    }
  }
  return place;
}

void Vocabulary::rehash(std::size_t slots) {
  slots_.assign(slots, {});
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    if (!taken_[id]) continue;
    const std::uint64_t hash = hash_of(tokens_[id]);
    slots_[place_of(tokens_[id], hash)] = {static_cast<std::uint32_t>(hash),
                                           static_cast<std::int32_t>(id)};
  }
}

}  // namespace mgpu::text
