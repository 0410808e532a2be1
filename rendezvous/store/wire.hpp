#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/binary_numbers.hpp"

// The wire format of PyTorch's TCPStore (c10d), as used by its clients since version 2.2.
//
// A request is one opcode byte and its fields, without a frame or a request number. Numbers are in
// host byte order; a string is a u64 length and its bytes. Replies are sent in request order.
namespace mgpu::rendezvous::store {

enum class Opcode : std::uint8_t {
  validate,      // u32 kMagic; no reply. Must be the first request of a connection.
  set,           // key, value; no reply
  compare_set,   // key, expected, desired -> value
  get,           // key -> value, empty if there is none
  add,           // key, i64 -> i64
  check,         // u64 n, n keys -> u8 kReady or kNotReady
  wait,          // u64 n, n keys -> u8 kStopWaiting once all exist
  num_keys,      // -> i64
  delete_key,    // key -> i64 number removed
  append,        // key, value; no reply
  multi_get,     // u64 n, n keys -> n values
  multi_set,     // i64 n, n times key and value; no reply
  cancel_wait,   // -> u8 kWaitCanceled
  ping,          // u32 -> the same u32
  queue_push,    // key, value; no reply
  queue_pop,     // key -> i64 length before; if that is not 0, the value
  queue_length,  // key -> i64
  list_keys,     // -> i64 n, n keys
  barrier,       // key, i64 world size -> u8 kStopWaiting once that many have arrived
};
inline constexpr std::size_t kOpcodes = 19;

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;
inline constexpr std::uint8_t kReady = 0;
inline constexpr std::uint8_t kNotReady = 1;
inline constexpr std::uint8_t kStopWaiting = 0;
inline constexpr std::uint8_t kWaitCanceled = 1;

inline constexpr std::uint64_t kMaxKeyBytes = 8 << 10;
inline constexpr std::uint64_t kMaxValueBytes = 8 << 20;
inline constexpr std::uint64_t kMaxKeys = 128 << 10;  // in one request
inline constexpr std::uint64_t kMaxRequestBytes = 64 << 20;

// The protocol's name of the request, such as "WAIT".
const char* name_of(Opcode opcode);

using rendezvous::put_number;

inline void put_opcode(std::string& out, Opcode opcode) {
  out.push_back(static_cast<char>(opcode));
}

inline void put_string(std::string& out, std::string_view bytes) {
  put_number<std::uint64_t>(out, bytes.size());
  out.append(bytes);
}

// A complete request; views into the reader's buffer.
struct Request {
  Opcode opcode = Opcode::validate;
  std::string_view fields;  // everything after the opcode

  std::size_t size() const { return 1 + fields.size(); }
};

// Reads fields from the front of a request. Performs no checks: RequestScanner has done them.
class FieldReader {
 public:
  explicit FieldReader(std::string_view fields) : rest_(fields) {}

  template <class Number>
  Number number() {
    const auto value = number_at<Number>(rest_, 0);
    rest_.remove_prefix(sizeof value);
    return value;
  }

  std::string_view string() {
    const auto size = number<std::uint64_t>();
    const auto bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  bool empty() const { return rest_.empty(); }
  std::size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

// Finds the end of each request in the bytes of one connection, which may arrive in pieces of any
// size, and detects violations: an unknown opcode, a size above the limits, a first request that is
// not VALIDATE with the right number. It keeps no bytes and examines no byte twice.
class RequestScanner {
 public:
  enum class Found { whole, partial, violation };

  // `bytes` must start with the first byte of a request. After `partial`, call it again with the
  // same bytes and more after them; after `whole`, with the bytes that follow `request`. A
  // violation is final.
  Found scan(std::string_view bytes, Request& request);

  bool validated() const { return validated_; }

 private:
  Found finish(std::string_view bytes, Request& request);

  std::uint64_t seen_ = 0;        // bytes of this request that were checked
  std::uint32_t items_left_ = 0;  // of a list, including the one being scanned
  std::uint8_t step_ = 0;         // next letter of the opcode's shape
  bool validated_ = false;
};

}  // namespace mgpu::rendezvous::store
