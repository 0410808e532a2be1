#include "rendezvous/store/relay_records.hpp"

namespace mgpu::rendezvous::store {
namespace {

constexpr std::size_t kHeaderBytes = 9;
constexpr std::size_t kMessageBytes = 1 << 20;

void put_u32(std::string& out, std::uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(number >> shift);
}

std::uint32_t u32_at(std::string_view bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i)
    number |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return number;
}

}  // namespace

void put_record(std::string& out, const RelayRecord& record) {
  const bool is_data = record.kind == RelayRecord::Kind::data;
  put_u32(out, record.client);
  out += static_cast<char>(record.kind);
  put_u32(out, is_data ? static_cast<std::uint32_t>(record.bytes.size()) : record.number);
  if (is_data) out.append(record.bytes);
}

std::string_view records_for_message(std::string_view records) {
  if (records.size() <= kMessageBytes) return records;
  std::size_t taken = 0;
  RelayRecordReader reader(records);
  RelayRecord record;
  while (reader.next(record)) {
    const auto end = records.size() - reader.left();
    if (end > kMessageBytes && taken > 0) break;
    taken = end;
  }
  return records.substr(0, taken);
}

bool RelayRecordReader::next(RelayRecord& record) {
  if (rest_.empty()) return false;
  if (rest_.size() < kHeaderBytes) throw RelayError("a store record that is cut off");
  const auto kind = static_cast<std::uint8_t>(rest_[4]);
  if (kind > static_cast<std::uint8_t>(RelayRecord::Kind::close))
    throw RelayError("a store record of unknown kind");
  record = {.client = u32_at(rest_, 0),
            .kind = static_cast<RelayRecord::Kind>(kind),
            .number = u32_at(rest_, 5)};
  rest_.remove_prefix(kHeaderBytes);
  if (record.kind != RelayRecord::Kind::data) return true;
  if (record.number > rest_.size()) throw RelayError("a store record that is cut off");
  record.bytes = rest_.substr(0, record.number);
  rest_.remove_prefix(record.number);
  record.number = 0;
  return true;
}

}  // namespace mgpu::rendezvous::store
