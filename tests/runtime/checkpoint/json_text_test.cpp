#include "runtime/checkpoint/json_text.hpp"

#include <nlohmann/json.hpp>

#include "tests/support/catch.hpp"

using namespace mgpu::checkpoint;
using Catch::Matchers::Contains;

TEST_CASE("invalid JSON is reported with file, line and column", "[json]") {
  CHECK_THROWS_WITH(parse_json("{\n  \"a\": nul\n}", "c.json"),
                    Contains("c.json:2:") && Contains("invalid JSON"));
  CHECK_THROWS_WITH(parse_json("", "c.json"), Contains("c.json:1:1"));
  CHECK_THROWS_WITH(parse_json("{\"a\": \"\xff\"}", "c.json"), Contains("UTF-8"));
  CHECK_THROWS_WITH(parse_json("{} x", "c.json"), Contains("c.json:1:4"));
  CHECK_THROWS_WITH(parse_json("{\"a\": 1e999}", "c.json"), Contains("c.json"));
}

TEST_CASE("a duplicate key is rejected", "[json]") {
  CHECK_THROWS_WITH(parse_json(R"({"a": {"b": 1, "b": 2}})", "c.json"),
                    "c.json: duplicate key 'b' in one object");
  CHECK(parse_json(R"({"a": {"a": 1}, "b": {"a": 1}})", "c.json").size() == 2);
}

TEST_CASE("quoted text in a message is one short line", "[json]") {
  CHECK(in_quotes("a\nb\x01") == "'a\\x0ab\\x01'");
  const std::string cut = in_quotes(std::string(119, 'a') + "\xc3\xa4\xc3\xa4");
  CHECK(cut == "'" + std::string(119, 'a') + "...'");  // no partial character
}

TEST_CASE("errors of fields name the file, the key and the wrong value", "[json]") {
  const Json json = parse_json(
      R"({"n": 3, "s": "x", "f": 0.5, "no": null, "big": 18446744073709551615, "l": ["a", 1]})",
      "c.json");
  const Fields fields(json, "c.json");
  CHECK(fields.integer("n", 0, 9) == 3);
  CHECK(fields.integer("no", 0, 9, 7) == 7);
  CHECK(fields.number("f") == 0.5);
  CHECK_FALSE(fields.has("no"));
  CHECK_THROWS_WITH(fields.integer("n", 4, 9),
                    "c.json: n must be a whole number from 4 to 9, not 3");
  CHECK_THROWS_WITH(fields.integer("f", 0, 9), Contains("not 0.5"));
  CHECK_THROWS_WITH(fields.integer("big", 0, 9), Contains("not 18446744073709551615"));
  CHECK_THROWS_WITH(fields.string("n"), "c.json: n must be a string, not 3");
  CHECK_THROWS_WITH(fields.string("gone"), "c.json: gone is missing; it must be a string");
  CHECK_THROWS_WITH(fields.strings("l"), "c.json: l must be a list of strings, not a list");
}
