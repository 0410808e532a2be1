#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/store/wire.hpp"

// Requests and replies of the store as bytes, for tests that use it without a client.
namespace mgpu::tests::request {

namespace store = mgpu::rendezvous::store;
using store::Opcode;

// The reply that ends a wait.
inline const std::string kStop(1, static_cast<char>(store::kStopWaiting));

inline std::string opcode(Opcode code) {
  return std::string(1, static_cast<char>(code));
}

template <class Number>
std::string number(Number value) {
  std::string bytes;
  store::put_number(bytes, value);
  return bytes;
}

inline std::string string(std::string_view text) {
  std::string bytes;
  store::put_string(bytes, text);
  return bytes;
}

template <class... Parts>
std::string joined(const Parts&... parts) {
  std::string all;
  (all.append(parts), ...);
  return all;
}

inline std::string validate(std::uint32_t magic = store::kMagic) {
  return joined(opcode(Opcode::validate), number(magic));
}
inline std::string ping(std::uint32_t nonce) {
  return joined(opcode(Opcode::ping), number(nonce));
}
inline std::string of_key(Opcode code, std::string_view key) {
  return joined(opcode(code), string(key));
}
inline std::string of_pair(Opcode code, std::string_view key, std::string_view value) {
  return joined(of_key(code, key), string(value));
}
inline std::string of_keys(Opcode code, std::initializer_list<std::string_view> keys) {
  std::string bytes = joined(opcode(code), number<std::uint64_t>(keys.size()));
  for (const auto key : keys) bytes += string(key);
  return bytes;
}
inline std::string set(std::string_view key, std::string_view value) {
  return of_pair(Opcode::set, key, value);
}
inline std::string get(std::string_view key) {
  return of_key(Opcode::get, key);
}
inline std::string add(std::string_view key, std::int64_t delta) {
  return joined(of_key(Opcode::add, key), number(delta));
}
inline std::string wait(std::initializer_list<std::string_view> keys) {
  return of_keys(Opcode::wait, keys);
}
inline std::string barrier(std::string_view key, std::int64_t world_size) {
  return joined(of_key(Opcode::barrier, key), number(world_size));
}
inline std::string compare_set(std::string_view key, std::string_view expected,
                               std::string_view desired) {
  return joined(of_pair(Opcode::compare_set, key, expected), string(desired));
}
inline std::string multi_set(
    std::initializer_list<std::pair<std::string_view, std::string_view>> pairs) {
  std::string bytes = joined(opcode(Opcode::multi_set), number<std::int64_t>(pairs.size()));
  for (const auto& [key, value] : pairs) bytes += joined(string(key), string(value));
  return bytes;
}

}  // namespace mgpu::tests::request
