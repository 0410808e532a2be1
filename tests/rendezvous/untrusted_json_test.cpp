#include "rendezvous/base/untrusted_json.hpp"

#include <string>

#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;

namespace {

std::string nested(int depth, const std::string& open, const std::string& close) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += "1";
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

}  // namespace

TEST_CASE("JSON that is nested too deeply is discarded", "[json]") {
  CHECK(parse_untrusted_json(nested(kDeepestJson, "[", "]")).is_array());
  CHECK(parse_untrusted_json(nested(kDeepestJson, "{\"a\":", "}")).is_object());
  for (const int depth : {kDeepestJson + 1, 300'000}) {
    CHECK(parse_untrusted_json(nested(depth, "[", "]")).is_discarded());
    CHECK(parse_untrusted_json(nested(depth, "{\"a\":", "}")).is_discarded());
    CHECK(parse_untrusted_json(std::string(static_cast<std::size_t>(depth), '[')).is_discarded());
  }
}

TEST_CASE("brackets in strings do not count as nesting", "[json]") {
  const std::string brackets(1000, '[');
  CHECK(parse_untrusted_json("[\"" + brackets + "\"]").is_array());
  CHECK(parse_untrusted_json("[\"\\\"" + brackets + "\"]").is_array());
  CHECK(nests_too_deeply("[\"\\\\\"," + brackets));
  CHECK(parse_untrusted_json("[" + std::string(5, ' ') + "[1],[2],{}]").size() == 3);
}

TEST_CASE("invalid JSON is discarded", "[json]") {
  for (const char* bad : {"", "[", "]", "nul", "{\"a\"}", "\"", "\\"})
    CHECK(parse_untrusted_json(bad).is_discarded());
}
