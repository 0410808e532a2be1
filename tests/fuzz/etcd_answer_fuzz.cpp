// Bytes from an etcd endpoint, which may be any server. The first byte selects how the rest is
// used: as one HTTP response split into pieces of that size (its low 5 bits), whose body is then
// read as every kind of answer, or with the high bit as such a body itself.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include "rendezvous/base/base64.hpp"
#include "rendezvous/etcd/answers.hpp"
#include "rendezvous/etcd/job_view.hpp"
#include "rendezvous/etcd/signer.hpp"
#include "rendezvous/http/message.hpp"

using namespace mgpu::rendezvous::etcd;
using mgpu::rendezvous::BootClock;
using mgpu::rendezvous::from_base64;
using mgpu::rendezvous::to_base64;
using mgpu::rendezvous::http::ResponseParser;

namespace {

void require(bool what) {
  if (!what) std::abort();
}

// The corpus has values that are signed with this secret.
const Signer kSigner("a secret of this test, 32 bytes or more", false);

// Only the value that was signed is accepted, and only as the write that it was signed for.
void check_value(const KeyValue& key) {
  const auto checked = kSigner.check(key);
  const bool accepted = checked.verdict == Signer::Verdict::accepted;
  require(accepted || checked.value.empty());
  require(accepted == rejection_text(key.key, checked.verdict).empty());
  KeyValue write = key;
  if (accepted) {
    write.value = checked.value;
    require(kSigner.sign(write) == key.value);
  }
  require(Signer().check(key).verdict != Signer::Verdict::accepted || !accepted);
  write.value = kSigner.sign(write);
  require(kSigner.check(write).verdict == Signer::Verdict::accepted);
  ++write.version;
  require(kSigner.check(write).verdict == Signer::Verdict::wrong_code);
}

void read_answers(int status, std::string_view body) {
  ErrorAnswer error;
  const auto kind = classify(status, body, error);
  require((kind == ResponseKind::ok) == (status == 200));
  require(error.message.find('\n') == std::string::npos);
  PutAnswer::parse(body);
  TransactionAnswer::parse(body);
  if (const auto lease = LeaseAnswer::parse(body)) {
    LeaseTimes times;
    times.confirmed(BootClock::time_point(std::chrono::hours(1)), std::chrono::seconds(lease->ttl));
    require(lease->ttl >= 0 && times.ttl().count() == lease->ttl);
  }
  if (const auto in = SignInAnswer::parse(body))
    require(in->token.find_first_of(" \r\n") == std::string::npos && !in->token.empty());
  JobView view(JobKeys::of("/mgpu-run", "j"));
  if (const auto range = RangeAnswer::parse(body)) {
    view.replace(range->keys, range->header.revision);
    for (const auto& key : range->keys) {
      require(from_base64(to_base64(key.value)) == key.value);
      check_value(key);
    }
  }
  if (const auto watch = WatchAnswer::parse(body))
    for (const auto& event : watch->events) view.apply(event);
}

struct Response {
  std::string body;
  int status = 0;
  bool whole = false;
};

// Reads all bytes of a peer in pieces; stops at bytes that are not HTTP.
Response receive(std::string_view bytes, std::size_t piece) {
  ResponseParser parser;
  Response response;
  try {
    while (!bytes.empty()) {
      parser.feed(bytes.substr(0, piece));
      bytes.remove_prefix(std::min(piece, bytes.size()));
    }
    parser.end();
    response.whole = parser.done();
  } catch (const std::exception& error) {
    require(*error.what() != '\0');
    return response;
  }
  require(response.whole && parser.begun());
  response.body = parser.take_body();
  response.status = parser.status();
  return response;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(input) + 1, size - 1);
  if (input[0] & 0x80) {
    read_answers(input[0] & 1 ? 200 : 500, rest);
    return 0;
  }
  const auto pieces = receive(rest, 1 + (input[0] & 31));
  const auto whole = receive(rest, rest.size() + 1);
  // Splitting changes nothing, except that a long trailer is only noticed while it is incomplete.
  require(
      (pieces.whole == whole.whole && pieces.status == whole.status && pieces.body == whole.body) ||
      (!pieces.whole && rest.size() > ResponseParser::kMaxHeadBytes));
  if (whole.whole) read_answers(whole.status, whole.body);
  return 0;
}
