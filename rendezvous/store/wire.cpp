#include "rendezvous/store/wire.hpp"

#include <array>

namespace mgpu::rendezvous::store {
namespace {

// The fields of each request: k a key, v a value, 4 and 8 a number of that many bytes; n a count,
// followed by the fields after it that many times.
struct Shape {
  const char* name;
  const char* fields;
};
constexpr std::array<Shape, kOpcodes> kShapes = {{
    {"VALIDATE", "4"},   {"SET", "kv"},     {"COMPARE_SET", "kvv"}, {"GET", "k"},
    {"ADD", "k8"},       {"CHECK", "nk"},   {"WAIT", "nk"},         {"GETNUMKEYS", ""},
    {"DELETE_KEY", "k"}, {"APPEND", "kv"},  {"MULTI_GET", "nk"},    {"MULTI_SET", "nkv"},
    {"CANCEL_WAIT", ""}, {"PING", "4"},     {"QUEUE_PUSH", "kv"},   {"QUEUE_POP", "k"},
    {"QUEUE_LEN", "k"},  {"LIST_KEYS", ""}, {"BARRIER", "k8"},
}};

}  // namespace

const char* name_of(Opcode opcode) {
  return kShapes[static_cast<std::size_t>(opcode)].name;
}

RequestScanner::Found RequestScanner::scan(std::string_view bytes, Request& request) {
  if (bytes.empty()) return Found::partial;
  const auto opcode = static_cast<std::uint8_t>(bytes[0]);
  if (opcode >= kOpcodes) return Found::violation;
  if (!validated_ && opcode != 0) return Found::violation;
  if (seen_ == 0) seen_ = 1;

  const char* fields = kShapes[opcode].fields;
  while (true) {
    const char field = fields[step_];
    if (field == '\0') {
      if (items_left_ <= 1) return finish(bytes.substr(0, seen_), request);
      --items_left_;
      step_ = 1;
      continue;
    }
    std::uint64_t size = field == '4' ? 4 : 8;
    if (bytes.size() - seen_ < size) return Found::partial;
    if (field == 'k' || field == 'v') {
      const auto length = number_at<std::uint64_t>(bytes, seen_);
      if (length > (field == 'k' ? kMaxKeyBytes : kMaxValueBytes)) return Found::violation;
      size += length;
      if (seen_ + size > kMaxRequestBytes) return Found::violation;
      if (bytes.size() - seen_ < size) return Found::partial;
    } else if (field == 'n') {
      const auto count = number_at<std::uint64_t>(bytes, seen_);
      if (count > kMaxKeys) return Found::violation;
      if (count == 0) return finish(bytes.substr(0, seen_ + size), request);
      items_left_ = static_cast<std::uint32_t>(count);
    }
    seen_ += size;
    ++step_;
  }
}

RequestScanner::Found RequestScanner::finish(std::string_view bytes, Request& request) {
  request = {static_cast<Opcode>(bytes[0]), bytes.substr(1)};
  seen_ = 0;
  items_left_ = 0;
  step_ = 0;
  if (request.opcode == Opcode::validate) {
    if (FieldReader(request.fields).number<std::uint32_t>() != kMagic) return Found::violation;
    validated_ = true;
  }
  return Found::whole;
}

}  // namespace mgpu::rendezvous::store
