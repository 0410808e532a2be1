#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace mgpu::rendezvous::store {

using ClientId = int;

// The clients whose WAIT or BARRIER ended with an operation; each has to be told kStopWaiting.
using Released = std::vector<ClientId>;

// What the store knows: values and queues by key, and who waits for what. It does no I/O.
//
// A key exists when it has a value or a queue that is not empty; that is what WAIT and CHECK ask.
// Everything else (counting, listing, deleting) sees values only. A client waits for one thing at
// a time: a new wait or barrier takes the place of the old one, which then is never released.
class Memory {
 public:
  [[nodiscard]] Released set(std::string_view key, std::string_view value);
  [[nodiscard]] Released append(std::string_view key, std::string_view value);

  // Null when there is none; good until the next change.
  const std::string* get(std::string_view key) const;

  // Stores `desired` where the value is `expected`, or where there is none and nothing is expected.
  // `value` is what a client is told: the value afterwards, or `expected` when there is still none.
  struct Exchanged {
    std::string_view value;
    Released released;
  };
  Exchanged compare_set(std::string_view key, std::string_view expected, std::string_view desired);

  // Adds to a decimal number, 0 when there is none; nothing happens if the value is no number.
  struct Sum {
    std::int64_t value = 0;
    Released released;
  };
  std::optional<Sum> add(std::string_view key, std::int64_t delta);

  bool remove(std::string_view key);
  bool exists(std::string_view key) const;

  // A push releases at most one client: the first that then waits for nothing else.
  [[nodiscard]] Released push(std::string_view key, std::string_view value);
  std::optional<std::string> pop(std::string_view key);
  std::size_t queue_length(std::string_view key) const;

  // True when all keys exist; else the client waits until each has come, once.
  bool wait(ClientId client, std::span<const std::string_view> keys);

  // Counts the client at the key, as a decimal number there. The `world_size`-th and whoever comes
  // after it pass and release the others. Nothing happens if the value is no number.
  struct Arrival {
    bool passed = false;
    Released released;
  };
  std::optional<Arrival> barrier(ClientId client, std::string_view key, std::int64_t world_size);

  // The client waits no longer, because it says so or because it is gone.
  void stop_waiting(ClientId client);

  void clear();

  std::size_t keys() const { return values_.size(); }
  std::size_t bytes() const { return bytes_; }  // of all keys, values and queued values
  std::size_t waiting() const { return waits_.size(); }

  template <class Visit>
  void for_each_key(Visit visit) const {
    for (const auto& [key, value] : values_) visit(key);
  }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const {
      return std::hash<std::string_view>{}(key);
    }
  };
  template <class Value>
  using ByKey = std::unordered_map<std::string, Value, Hash, std::equal_to<>>;

  struct Wait {
    std::vector<std::string> keys;  // also those that have come since
    std::size_t missing = 0;
    bool barrier = false;
  };

  void store(std::string_view key, std::string_view value);
  void release_waiters(std::string_view key, Released& released);
  bool key_arrived(ClientId client);

  ByKey<std::string> values_;
  ByKey<std::deque<std::string>> queues_;    // none is empty
  ByKey<std::vector<ClientId>> waiters_;     // in the order they came; none is empty
  ByKey<std::vector<ClientId>> at_barrier_;  // likewise
  std::unordered_map<ClientId, Wait> waits_;
  std::size_t bytes_ = 0;
};

}  // namespace mgpu::rendezvous::store
