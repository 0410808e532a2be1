#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/store/channel.hpp"
#include "rendezvous/store/wire.hpp"

namespace mgpu::rendezvous::store {

// A wait timed out. The connection is still usable.
struct StoreTimeout : StoreError {
  using StoreError::StoreError;
};

// A blocking client of the store, for one thread. Keys are prefixed with "/" as in c10d, so that
// both see the same keys. Every call ends by its deadline. After a StoreError other than
// StoreTimeout the client can only be destroyed.
class StoreClient {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // Connects, retrying until `timeout` while nothing listens there, and performs the handshake.
  // `timeout` is also the limit of every call without its own limit.
  StoreClient(const std::string& host, int port, Milliseconds timeout = std::chrono::minutes(5));

  void set(std::string_view key, std::string_view value);
  void multi_set(std::span<const std::pair<std::string, std::string>> pairs);
  void append(std::string_view key, std::string_view value);
  std::int64_t add(std::string_view key, std::int64_t delta);
  // Returns the value afterwards, or `expected` if there is no value and `expected` is not empty.
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired);
  bool remove(std::string_view key);

  // These wait until the keys exist.
  std::string get(std::string_view key);
  std::vector<std::string> multi_get(std::span<const std::string> keys);
  void wait(std::span<const std::string> keys);
  void wait(std::span<const std::string> keys, Milliseconds timeout);

  // These do not wait.
  std::string get_now(std::string_view key);  // empty if there is no value
  bool check(std::span<const std::string> keys);
  std::int64_t num_keys();
  std::vector<std::string> list_keys();

  void push(std::string_view queue, std::string_view value);
  std::optional<std::string> try_pop(std::string_view queue);
  std::string pop(std::string_view queue);  // waits
  std::int64_t queue_length(std::string_view queue);

  // Returns once `world_size` clients have called it with this key.
  void barrier(std::string_view key, std::int64_t world_size);
  void barrier(std::string_view key, std::int64_t world_size, Milliseconds timeout);

 private:
  void begin(Opcode opcode);
  void put_key(std::string_view key);
  void put_keys(std::span<const std::string> keys);
  void wait_for_release(Opcode opcode, std::string_view key, Milliseconds timeout);

  Milliseconds timeout_;
  Channel channel_;
  std::string request_;
};

}  // namespace mgpu::rendezvous::store
