#include "rendezvous/store/memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace mgpu::rendezvous::store {
namespace {

// The number at the start of a value, parsed like std::stoll, which c10d uses.
std::optional<std::int64_t> number_in(const std::string& value) {
  char* end = nullptr;
  errno = 0;
  const std::int64_t number = std::strtoll(value.c_str(), &end, 10);
  if (end == value.c_str() || errno == ERANGE) return std::nullopt;
  return number;
}

std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

// The entry of a key, created if missing. unordered_map::try_emplace would construct a std::string
// even for an existing key; looking up first keeps changes of existing keys cheap.
template <class Map>
auto& entry(Map& map, std::string_view key) {
  const auto found = map.find(key);
  return found != map.end() ? found->second : map[std::string(key)];
}

// What a map needs for an entry besides its key and value.
constexpr std::size_t kEntryBytes = 128;

template <class Map>
void remove_client(Map& clients_by_key, std::string_view key, ClientId client) {
  const auto found = clients_by_key.find(key);
  if (found == clients_by_key.end()) return;
  std::erase(found->second, client);
  if (found->second.empty()) clients_by_key.erase(found);
}

}  // namespace

void Memory::store(std::string_view key, std::string_view value) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    values_.emplace(key, value);
    bytes_ += key.size() + value.size();
  } else {
    bytes_ += value.size() - found->second.size();
    // Assigning would keep the memory of a larger value, which the footprint does not count.
    if (found->second.capacity() > 2 * value.size() + kEntryBytes)
      std::string(value).swap(found->second);
    else
      found->second.assign(value);
  }
}

bool Memory::key_arrived(ClientId client) {
  const auto wait = waits_.find(client);
  if (--wait->second.missing > 0) return false;
  remove_wait(wait);
  return true;
}

void Memory::release_waiters(std::string_view key, Released& released) {
  if (waiters_.empty()) return;
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  for (const ClientId client : found->second)
    if (key_arrived(client)) released.push_back(client);
  waiters_.erase(found);
}

Released Memory::set(std::string_view key, std::string_view value) {
  store(key, value);
  Released released;
  release_waiters(key, released);
  return released;
}

Released Memory::append(std::string_view key, std::string_view value) {
  const auto found = values_.find(key);
  if (found == values_.end()) return set(key, value);
  found->second.append(value);
  bytes_ += value.size();
  return {};  // nothing waits for a key that exists
}

const std::string* Memory::get(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Memory::Exchanged Memory::compare_set(std::string_view key, std::string_view expected,
                                      std::string_view desired) {
  const std::string* current = get(key);
  if (!current && !expected.empty()) return {expected, {}};
  if (current && *current != expected) return {*current, {}};
  return {desired, set(key, desired)};
}

std::optional<Memory::Sum> Memory::add(std::string_view key, std::int64_t delta) {
  if (const std::string* current = get(key)) {
    const auto number = number_in(*current);
    if (!number) return std::nullopt;
    delta = wrapping_sum(delta, *number);
  }
  return Sum{delta, set(key, std::to_string(delta))};
}

bool Memory::remove(std::string_view key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  bytes_ -= found->first.size() + found->second.size();
  values_.erase(found);
  return true;
}

bool Memory::exists(std::string_view key) const {
  return values_.contains(key) || queues_.contains(key);
}

Released Memory::push(std::string_view key, std::string_view value) {
  entry(queues_, key).emplace_back(value);
  ++queued_;
  bytes_ += key.size() + value.size();
  Released released;
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return released;
  auto& clients = found->second;
  auto next = clients.begin();
  while (next != clients.end() && released.empty()) {
    const ClientId client = *next++;
    if (key_arrived(client)) released.push_back(client);
  }
  clients.erase(clients.begin(), next);
  if (clients.empty()) waiters_.erase(found);
  return released;
}

std::optional<std::string> Memory::pop(std::string_view key) {
  const auto found = queues_.find(key);
  if (found == queues_.end()) return std::nullopt;
  std::string value = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) queues_.erase(found);
  --queued_;
  bytes_ -= key.size() + value.size();
  return value;
}

std::size_t Memory::queue_length(std::string_view key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : found->second.size();
}

bool Memory::wait(ClientId client, std::span<const std::string_view> keys) {
  stop_waiting(client);
  Wait wait;
  for (const auto key : keys) {
    if (exists(key)) continue;
    auto& clients = entry(waiters_, key);
    if (!clients.empty() && clients.back() == client) continue;  // a duplicate key
    clients.push_back(client);
    wait.keys.emplace_back(key);
  }
  if (wait.keys.empty()) return true;
  wait.missing = wait.keys.size();
  add_wait(client, std::move(wait));
  return false;
}

std::optional<Memory::Arrival> Memory::barrier(ClientId client, std::string_view key,
                                               std::int64_t world_size) {
  stop_waiting(client);
  auto count = add(key, 1);
  if (!count) return std::nullopt;
  Arrival arrival{count->value >= world_size, std::move(count->released)};
  if (arrival.passed) {
    const auto found = at_barrier_.find(key);
    if (found == at_barrier_.end()) return arrival;
    for (const ClientId other : found->second) {
      remove_wait(waits_.find(other));
      arrival.released.push_back(other);
    }
    at_barrier_.erase(found);
  } else {
    entry(at_barrier_, key).push_back(client);
    add_wait(client, Wait{{std::string(key)}, 1, true});
  }
  return arrival;
}

void Memory::stop_waiting(ClientId client) {
  if (waits_.empty()) return;
  const auto found = waits_.find(client);
  if (found == waits_.end()) return;
  for (const auto& key : found->second.keys)
    remove_client(found->second.barrier ? at_barrier_ : waiters_, key, client);
  remove_wait(found);
}

void Memory::add_wait(ClientId client, Wait wait) {
  wait_keys_ += wait.keys.size();
  for (const auto& key : wait.keys) wait_bytes_ += 2 * key.size();  // also in the map of waiters
  waits_.emplace(client, std::move(wait));
}

void Memory::remove_wait(std::unordered_map<ClientId, Wait>::iterator wait) {
  wait_keys_ -= wait->second.keys.size();
  for (const auto& key : wait->second.keys) wait_bytes_ -= 2 * key.size();
  waits_.erase(wait);
}

std::size_t Memory::footprint() const {
  return bytes_ + wait_bytes_ + kEntryBytes * (values_.size() + queued_ + wait_keys_);
}

void Memory::clear() {
  const auto limit = limit_;
  *this = Memory();
  limit_ = limit;
}

}  // namespace mgpu::rendezvous::store
