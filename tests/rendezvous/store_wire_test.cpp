#include "rendezvous/store/wire.hpp"

#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/store_requests.hpp"

using namespace mgpu::rendezvous::store;
namespace request = mgpu::tests::request;
using Found = RequestScanner::Found;

namespace {

// One request of every kind, VALIDATE first.
std::vector<std::string> one_of_each() {
  using enum Opcode;
  return {request::validate(),
          request::set("/k", std::string("a\0b", 3)),
          request::compare_set("/k", "", "v"),
          request::get("/k"),
          request::add("/n", -1),
          request::of_keys(check, {"/a", "/b"}),
          request::of_keys(wait, {}),
          request::opcode(num_keys),
          request::of_key(delete_key, ""),
          request::of_pair(append, "/k", ""),
          request::of_keys(multi_get, {"/a", "/bb", "/ccc"}),
          request::multi_set({{"/a", "1"}, {"/b", ""}}),
          request::opcode(cancel_wait),
          request::ping(7),
          request::of_pair(queue_push, "/q", "v"),
          request::of_key(queue_pop, "/q"),
          request::of_key(queue_length, "/q"),
          request::opcode(list_keys),
          request::barrier("/b", 2)};
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const auto& part : parts) all += part;
  return all;
}

// Feeds the bytes in pieces, like a connection, and returns the requests found in them.
std::vector<std::string> scanned(const std::vector<std::string>& pieces) {
  RequestScanner scanner;
  std::string kept;
  std::vector<std::string> found;
  for (const auto& piece : pieces) {
    kept += piece;
    Request next;
    while (true) {
      const Found result = scanner.scan(kept, next);
      REQUIRE(result != Found::violation);
      if (result == Found::partial) break;
      found.push_back(kept.substr(0, next.size()));
      kept.erase(0, next.size());
    }
  }
  CHECK(kept.empty());
  return found;
}

Found after_validate(const std::string& bytes) {
  RequestScanner scanner;
  Request next;
  REQUIRE(scanner.scan(request::validate(), next) == Found::whole);
  return scanner.scan(bytes, next);
}

}  // namespace

TEST_CASE("every request is found however the bytes are cut", "[store][wire]") {
  const auto requests = one_of_each();
  const auto all = joined(requests);
  REQUIRE(requests.size() == kOpcodes);

  SECTION("in one piece") {
    CHECK(scanned({all}) == requests);
  }
  SECTION("byte by byte") {
    std::vector<std::string> bytes;
    for (const char byte : all) bytes.emplace_back(1, byte);
    CHECK(scanned(bytes) == requests);
  }
  SECTION("in two pieces, cut anywhere") {
    for (std::size_t cut = 0; cut <= all.size(); ++cut) {
      CAPTURE(cut);
      CHECK(scanned({all.substr(0, cut), all.substr(cut)}) == requests);
    }
  }
}

TEST_CASE("the fields of a request are read as they were written", "[store][wire]") {
  const auto bytes = request::compare_set("/key", "old", "");
  FieldReader fields(std::string_view(bytes).substr(1));
  CHECK(fields.string() == "/key");
  CHECK(fields.string() == "old");
  CHECK(fields.string().empty());
  CHECK(fields.empty());
}

TEST_CASE("the first request must be VALIDATE with the right number", "[store][wire]") {
  RequestScanner scanner;
  Request next;
  SECTION("another request is rejected at its first byte") {
    const auto code = GENERATE(range(1, static_cast<int>(kOpcodes)));
    CHECK(scanner.scan(std::string(1, static_cast<char>(code)), next) == Found::violation);
  }
  SECTION("so is a wrong number") {
    CHECK(scanner.scan(request::validate(0x3C85F7CF), next) == Found::violation);
  }
  SECTION("an incomplete number is neither accepted nor rejected") {
    CHECK(scanner.scan(request::validate().substr(0, 3), next) == Found::partial);
    CHECK_FALSE(scanner.validated());
    CHECK(scanner.scan(request::validate(), next) == Found::whole);
    CHECK(scanner.validated());
  }
  SECTION("a browser's request is rejected") {
    CHECK(scanner.scan("GET / HTTP/1.1\r\n", next) == Found::violation);
  }
}

TEST_CASE("sizes above the limits are rejected before their bytes arrive", "[store][wire]") {
  const auto u64 = [](std::uint64_t n) { return request::number(n); };
  const auto set = request::opcode(Opcode::set);
  const auto wait = request::opcode(Opcode::wait);
  const auto multi_set = request::opcode(Opcode::multi_set);

  CHECK(after_validate(set + u64(kMaxKeyBytes)) == Found::partial);
  CHECK(after_validate(set + u64(kMaxKeyBytes + 1)) == Found::violation);
  CHECK(after_validate(set + u64(8ULL << 30)) == Found::violation);
  CHECK(after_validate(set + request::string("/k") + u64(kMaxValueBytes)) == Found::partial);
  CHECK(after_validate(set + request::string("/k") + u64(kMaxValueBytes + 1)) == Found::violation);
  CHECK(after_validate(wait + u64(kMaxKeys)) == Found::partial);
  CHECK(after_validate(wait + u64(kMaxKeys + 1)) == Found::violation);
  CHECK(after_validate(multi_set + request::number<std::int64_t>(-1)) == Found::violation);
  CHECK(after_validate(wait + u64(2) + request::string("/k") + u64(~0ULL)) == Found::violation);
  CHECK(after_validate(std::string(1, char{kOpcodes})) == Found::violation);
  CHECK(after_validate("\xff") == Found::violation);
}
