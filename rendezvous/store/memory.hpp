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

// The clients whose WAIT or BARRIER an operation has completed; send each kStopWaiting.
using Released = std::vector<ClientId>;

// The contents of the store: values and queues by key, and which client waits for what. No I/O.
//
// For WAIT and CHECK a key exists if it has a value or a non-empty queue. All other operations
// (counting, listing, deleting) see values only. A client has at most one wait: a new wait or
// barrier replaces the old one, which is then never released.
class Memory {
 public:
  [[nodiscard]] Released set(std::string_view key, std::string_view value);
  [[nodiscard]] Released append(std::string_view key, std::string_view value);

  // Null if there is no value; valid until the next change.
  const std::string* get(std::string_view key) const;

  // Stores `desired` if the value is `expected`, or if there is no value and `expected` is empty.
  // `value` is the reply: the value afterwards, or `expected` if there is still none.
  struct Exchanged {
    std::string_view value;
    Released released;
  };
  Exchanged compare_set(std::string_view key, std::string_view expected, std::string_view desired);

  // Adds to a decimal number; a missing value counts as 0. Does nothing if the value is not a
  // number.
  struct Sum {
    std::int64_t value = 0;
    Released released;
  };
  std::optional<Sum> add(std::string_view key, std::int64_t delta);

  bool remove(std::string_view key);
  bool exists(std::string_view key) const;

  // A push releases at most one client: the first one that then waits for no other key.
  [[nodiscard]] Released push(std::string_view key, std::string_view value);
  std::optional<std::string> pop(std::string_view key);
  std::size_t queue_length(std::string_view key) const;

  // True if all keys exist; else the client waits until each key has existed once.
  bool wait(ClientId client, std::span<const std::string_view> keys);

  // Counts the client in the value of the key, a decimal number. The `world_size`-th client and all
  // later ones pass at once and release the others. Does nothing if the value is not a number.
  struct Arrival {
    bool passed = false;
    Released released;
  };
  std::optional<Arrival> barrier(ClientId client, std::string_view key, std::int64_t world_size);

  // Ends the client's wait, because it canceled it or disconnected.
  void stop_waiting(ClientId client);

  void clear();  // keeps the limit

  // Whether a request of that many bytes may add to the contents. Estimates what keys, values and
  // waits take, their entries included.
  bool has_room(std::size_t request_bytes) const { return footprint() + request_bytes <= limit_; }
  void limit(std::size_t bytes) { limit_ = bytes; }
  std::size_t footprint() const;

  std::size_t keys() const { return values_.size(); }
  std::size_t bytes() const { return bytes_; }  // of all keys, values and queued values
  std::size_t waiting() const { return waits_.size(); }
  bool is_waiting(ClientId client) const { return waits_.contains(client); }

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
    std::vector<std::string> keys;  // including those that exist by now
    std::size_t missing = 0;
    bool barrier = false;
  };

  void store(std::string_view key, std::string_view value);
  void add_wait(ClientId client, Wait wait);
  void remove_wait(std::unordered_map<ClientId, Wait>::iterator wait);
  void release_waiters(std::string_view key, Released& released);
  bool key_arrived(ClientId client);

  ByKey<std::string> values_;
  ByKey<std::deque<std::string>> queues_;    // none is empty
  ByKey<std::vector<ClientId>> waiters_;     // in the order of arrival; none is empty
  ByKey<std::vector<ClientId>> at_barrier_;  // likewise
  std::unordered_map<ClientId, Wait> waits_;
  std::size_t bytes_ = 0;
  std::size_t queued_ = 0;     // values in queues
  std::size_t wait_keys_ = 0;  // of all waits, with the bytes below
  std::size_t wait_bytes_ = 0;
  std::size_t limit_ = static_cast<std::size_t>(-1);
};

}  // namespace mgpu::rendezvous::store
