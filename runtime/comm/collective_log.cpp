#include "runtime/comm/collective_log.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <string_view>

namespace mgpu::comm {
namespace {

// With NCCL the host starts collectives long before the GPU runs them.
constexpr std::int64_t kRemembered = 512;
constexpr std::size_t kLongestName = 47;

}  // namespace

struct CollectiveLog::State {
  struct Slot {
    std::int64_t sequence = 0;
    std::int64_t elements = 0;
    bool finished = false;
    char name[kLongestName + 1] = {};
  };

  mutable std::mutex mutex;
  std::array<Slot, kRemembered> slots;
  std::int64_t last = 0;

  Slot& slot(std::int64_t sequence) {
    return slots[static_cast<std::size_t>(sequence % kRemembered)];
  }
};

CollectiveLog::CollectiveLog() : state_(new State) {}

CollectiveLog::~CollectiveLog() {
  delete state_;
}

std::int64_t CollectiveLog::started(const char* name, std::int64_t elements) {
  const std::lock_guard lock(state_->mutex);
  auto& slot = state_->slot(++state_->last);
  slot.sequence = state_->last;
  slot.elements = elements;
  slot.finished = false;
  const auto length = ::strnlen(name, kLongestName);
  std::memcpy(slot.name, name, length);
  slot.name[length] = '\0';
  return state_->last;
}

void CollectiveLog::finished(std::int64_t sequence) {
  const std::lock_guard lock(state_->mutex);
  auto& slot = state_->slot(sequence);
  if (slot.sequence == sequence) slot.finished = true;
}

void CollectiveLog::restart() {
  const std::lock_guard lock(state_->mutex);
  state_->slots = {};
  state_->last = 0;
}

std::optional<CollectiveLog::Entry> CollectiveLog::current() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->last == 0) return std::nullopt;
  const State::Slot* found = &state_->slot(state_->last);
  for (auto at = std::max<std::int64_t>(1, state_->last - kRemembered + 1); at <= state_->last;
       ++at)
    if (const auto& slot = state_->slot(at); !slot.finished) {
      found = &slot;
      break;
    }
  return Entry{found->sequence, found->name, found->elements, found->finished};
}

CollectiveLog& collectives() {
  static auto* const log = new CollectiveLog;
  return *log;
}

}  // namespace mgpu::comm
