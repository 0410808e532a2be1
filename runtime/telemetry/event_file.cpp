#include "runtime/telemetry/event_file.hpp"

#include <unistd.h>

#include <array>
#include <bit>

#include <fmt/format.h>

#include "rendezvous/base/host_name.hpp"

namespace mgpu::telemetry {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    table[byte] = crc;
  }
  return table;
}

template <class Number>
void put_fixed(std::string& out, Number number) {
  for (std::size_t i = 0; i < sizeof number; ++i) out += static_cast<char>(number >> 8 * i & 0xFF);
}

// The protobuf field types that Event needs.
void put_varint(std::string& out, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) out += static_cast<char>(number | 0x80);
  out += static_cast<char>(number);
}

void put_key(std::string& out, unsigned field, unsigned wire_type) {
  put_varint(out, field << 3 | wire_type);
}

void put_number(std::string& out, unsigned field, std::int64_t number) {
  put_key(out, field, 0);
  put_varint(out, static_cast<std::uint64_t>(number));
}

void put_double(std::string& out, unsigned field, double number) {
  put_key(out, field, 1);
  put_fixed(out, std::bit_cast<std::uint64_t>(number));
}

void put_float(std::string& out, unsigned field, float number) {
  put_key(out, field, 5);
  put_fixed(out, std::bit_cast<std::uint32_t>(number));
}

void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
  put_key(out, field, 2);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event(double time, std::int64_t step) {
  std::string out;
  put_double(out, 1, time);
  put_number(out, 2, step);
  return out;
}

// An Event whose Summary has one Value.
std::string value_event(double time, std::int64_t step, std::string_view value) {
  std::string summary, out = event(time, step);
  put_bytes(summary, 1, value);
  put_bytes(out, 5, summary);
  return out;
}

std::string writer_name() {
  const std::string name = rendezvous::host_name();
  return name.empty() ? "localhost" : name;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = make_crc_table();
  std::uint32_t crc = ~0u;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

std::string tf_record(std::string_view bytes) {
  std::string out;
  put_fixed(out, std::uint64_t{bytes.size()});
  put_fixed(out, masked_crc32c(out));
  out += bytes;
  put_fixed(out, masked_crc32c(bytes));
  return out;
}

std::string version_event(double time) {
  std::string out;
  put_double(out, 1, time);
  put_bytes(out, 3, "brain.Event:2");
  return out;
}

std::string scalar_event(double time, std::int64_t step, std::string_view tag, double value) {
  std::string one;
  put_bytes(one, 1, tag);
  put_float(one, 2, static_cast<float>(value));
  return value_event(time, step, one);
}

std::string text_event(double time, std::int64_t step, std::string_view tag,
                       std::string_view text) {
  constexpr int kString = 7;  // DT_STRING
  std::string dimension, shape, tensor;
  put_number(dimension, 1, 1);
  put_bytes(shape, 2, dimension);
  put_number(tensor, 1, kString);
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, text);
  std::string plugin, metadata, one;
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_bytes(one, 1, tag);
  put_bytes(one, 8, tensor);
  put_bytes(one, 9, metadata);
  return value_event(time, step, one);
}

std::string restart_event(double time, std::int64_t step) {
  std::string log, out = event(time, step);
  put_number(log, 1, 1);  // START
  put_bytes(out, 7, log);
  return out;
}

std::string event_file_name(double time) {
  return fmt::format("events.out.tfevents.{}.{}.{}.0", static_cast<std::int64_t>(time),
                     writer_name(), ::getpid());
}

EventFile::EventFile(const std::string& folder, double time, const ErrorCallback& on_error)
    : file_(folder + "/" + event_file_name(time), on_error) {
  add(version_event(time));
}

}  // namespace mgpu::telemetry
