#include "rendezvous/store/client.hpp"

#include <unistd.h>

#include <fmt/format.h>

namespace mgpu::rendezvous::store {

using std::chrono::steady_clock;

StoreClient::StoreClient(const std::string& host, int port, Milliseconds timeout)
    : timeout_(timeout), channel_(host, port, steady_clock::now() + timeout) {
  const auto nonce = static_cast<std::uint32_t>(::getpid());
  begin(Opcode::validate);
  put_number(request_, kMagic);
  put_opcode(request_, Opcode::ping);
  put_number(request_, nonce);
  channel_.send(request_);
  if (channel_.number<std::uint32_t>() != nonce)
    channel_.fail("wrong reply to PING; is it a store?");
}

void StoreClient::begin(Opcode opcode) {
  channel_.begin(name_of(opcode), steady_clock::now() + timeout_);
  request_.clear();
  put_opcode(request_, opcode);
}

void StoreClient::put_key(std::string_view key) {
  put_number<std::uint64_t>(request_, key.size() + 1);
  request_.push_back('/');
  request_.append(key);
}

void StoreClient::put_keys(std::span<const std::string> keys) {
  put_number<std::uint64_t>(request_, keys.size());
  for (const auto& key : keys) put_key(key);
}

void StoreClient::set(std::string_view key, std::string_view value) {
  begin(Opcode::set);
  put_key(key);
  put_string(request_, value);
  channel_.send(request_);
}

void StoreClient::multi_set(std::span<const std::pair<std::string, std::string>> pairs) {
  begin(Opcode::multi_set);
  put_number(request_, static_cast<std::int64_t>(pairs.size()));
  for (const auto& [key, value] : pairs) {
    put_key(key);
    put_string(request_, value);
  }
  channel_.send(request_);
}

void StoreClient::append(std::string_view key, std::string_view value) {
  begin(Opcode::append);
  put_key(key);
  put_string(request_, value);
  channel_.send(request_);
}

std::int64_t StoreClient::add(std::string_view key, std::int64_t delta) {
  begin(Opcode::add);
  put_key(key);
  put_number(request_, delta);
  channel_.send(request_);
  return channel_.number<std::int64_t>();
}

std::string StoreClient::compare_set(std::string_view key, std::string_view expected,
                                     std::string_view desired) {
  begin(Opcode::compare_set);
  put_key(key);
  put_string(request_, expected);
  put_string(request_, desired);
  channel_.send(request_);
  return channel_.string();
}

bool StoreClient::remove(std::string_view key) {
  begin(Opcode::delete_key);
  put_key(key);
  channel_.send(request_);
  return channel_.number<std::int64_t>() != 0;
}

std::string StoreClient::get(std::string_view key) {
  const std::string keys[] = {std::string(key)};
  wait(keys);
  return get_now(key);
}

std::string StoreClient::get_now(std::string_view key) {
  begin(Opcode::get);
  put_key(key);
  channel_.send(request_);
  return channel_.string();
}

std::vector<std::string> StoreClient::multi_get(std::span<const std::string> keys) {
  wait(keys);
  begin(Opcode::multi_get);
  put_keys(keys);
  channel_.send(request_);
  std::vector<std::string> values(keys.size());
  for (auto& value : values) value = channel_.string();
  return values;
}

bool StoreClient::check(std::span<const std::string> keys) {
  begin(Opcode::check);
  put_keys(keys);
  channel_.send(request_);
  return channel_.number<std::uint8_t>() == kReady;
}

std::int64_t StoreClient::num_keys() {
  begin(Opcode::num_keys);
  channel_.send(request_);
  return channel_.number<std::int64_t>();
}

std::vector<std::string> StoreClient::list_keys() {
  begin(Opcode::list_keys);
  channel_.send(request_);
  std::vector<std::string> keys;
  for (auto left = channel_.number<std::int64_t>(); left > 0; --left) {
    auto key = channel_.string();
    if (key.starts_with('/'))
      keys.push_back(key.substr(1));  // keys without "/" are internal to c10d
  }
  return keys;
}

void StoreClient::push(std::string_view queue, std::string_view value) {
  begin(Opcode::queue_push);
  put_key(queue);
  put_string(request_, value);
  channel_.send(request_);
}

std::optional<std::string> StoreClient::try_pop(std::string_view queue) {
  begin(Opcode::queue_pop);
  put_key(queue);
  channel_.send(request_);
  if (channel_.number<std::int64_t>() == 0) return std::nullopt;
  return channel_.string();
}

std::string StoreClient::pop(std::string_view queue) {
  const auto end = steady_clock::now() + timeout_;
  const std::string keys[] = {std::string(queue)};
  while (true) {  // another client may pop the value first
    wait(keys, std::chrono::ceil<Milliseconds>(end - steady_clock::now()));
    if (auto value = try_pop(queue)) return *std::move(value);
  }
}

std::int64_t StoreClient::queue_length(std::string_view queue) {
  begin(Opcode::queue_length);
  put_key(queue);
  channel_.send(request_);
  return channel_.number<std::int64_t>();
}

void StoreClient::wait(std::span<const std::string> keys) {
  wait(keys, timeout_);
}

void StoreClient::wait(std::span<const std::string> keys, Milliseconds timeout) {
  begin(Opcode::wait);
  put_keys(keys);
  channel_.send(request_);
  wait_for_release(Opcode::wait, keys.empty() ? std::string_view() : keys.front(), timeout);
}

void StoreClient::barrier(std::string_view key, std::int64_t world_size) {
  barrier(key, world_size, timeout_);
}

void StoreClient::barrier(std::string_view key, std::int64_t world_size, Milliseconds timeout) {
  begin(Opcode::barrier);
  put_key(key);
  put_number(request_, world_size);
  channel_.send(request_);
  wait_for_release(Opcode::barrier, key, timeout);
}

// Reads kStopWaiting, or cancels the wait at its deadline.
void StoreClient::wait_for_release(Opcode opcode, std::string_view key, Milliseconds timeout) {
  if (channel_.readable_by(steady_clock::now() + timeout)) {
    if (channel_.number<std::uint8_t>() != kStopWaiting) channel_.fail("invalid reply");
    return;
  }
  begin(Opcode::cancel_wait);
  channel_.send(request_);
  // The release may already be in transit: then it arrives first, and the wait has succeeded.
  const bool released = channel_.number<std::uint8_t>() == kStopWaiting;
  if (released && channel_.number<std::uint8_t>() != kWaitCanceled) channel_.fail("invalid reply");
  if (!released)
    throw StoreTimeout(fmt::format("store {}: {} {} did not end within {} s", channel_.server(),
                                   name_of(opcode), key,
                                   static_cast<double>(timeout.count()) / 1000));
}

}  // namespace mgpu::rendezvous::store
