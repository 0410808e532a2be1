#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

// What an agent and its leader say about the store's clients on the agent's node: many clients
// share one connection. A record is a client's number of four bytes, its kind, a number of four
// bytes, and for data that many bytes; numbers are little-endian.
namespace mgpu::rendezvous::store {

// Bytes that may be under way to one client, or from it, without the receiver's consent. Each side
// consents to more with a credit when it has passed on what it got.
inline constexpr std::size_t kRelayWindow = 512 << 10;
inline constexpr std::size_t kRelayCreditStep = kRelayWindow / 4;

using RelayedClient = std::uint32_t;  // a number that the agent chooses; never used twice

struct RelayError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct RelayRecord {
  enum class Kind : std::uint8_t { open, data, credit, close };
  RelayedClient client = 0;
  Kind kind = Kind::open;
  std::uint32_t number = 0;  // of credit
  std::string_view bytes;    // of data
};

void put_record(std::string& out, const RelayRecord& record);

// The whole records at the start of `records` that one message holds: at most 1 MiB, or one record.
std::string_view records_for_message(std::string_view records);

// Reads records from bytes that contain whole ones only. Throws RelayError.
class RelayRecordReader {
 public:
  explicit RelayRecordReader(std::string_view bytes) : rest_(bytes) {}
  bool next(RelayRecord& record);
  std::size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

}  // namespace mgpu::rendezvous::store
