#include <string>

#include "runtime/data/row.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using Catch::Matchers::Contains;

TEST_CASE("a row keeps its keys in file order", "[row]") {
  const Json row = parse_row(R"({"z": 1, "a": {"y": [true, null, -2, 1.5], "b": "x"}, "m": ""})");
  CHECK(row.dump() == R"({"z":1,"a":{"y":[true,null,-2,1.5],"b":"x"},"m":""})");
}

TEST_CASE("rows are parsed as by nlohmann::json", "[row]") {
  const std::string line = GENERATE(
      R"({"a":[0,-0,1,-1,1.5,-2.5e3,1E+2,1e-400,9223372036854775807,-9223372036854775808,)"
      R"(18446744073709551615]})",
      R"({"\"\\\/\b\f\n\r\t":"\u0000\u007f\u0080\u07ff\u0800\uffff\ud800\udc00\udbff\udfff"})",
      " { \"a\" : [ ] , \"b\" : { } , \"c\" : [ [ ] , { \"a\" : null } ] } \r",
      "{\"a\":\"\u00e9\u20ac\U0001F600\"}");
  CAPTURE(line);
  const Json ours = parse_row(line), theirs = Json::parse(line);
  CHECK(ours == theirs);
  CHECK(ours.dump() == theirs.dump());
}

TEST_CASE("a line ends with CRLF as well as with LF", "[row]") {
  CHECK(parse_row("  {\"a\": \"\\u00e9\\ud83d\\ude00\"}\r")["a"] == "\u00e9\U0001F600");
}

TEST_CASE("a line that is not a JSON object is rejected with the reason", "[row]") {
  struct Case {
    std::string line, what;
  };
  const auto [line, what] = GENERATE(values<Case>({
      {"[1]", "not a JSON object: [1]"},
      {"null", "not a JSON object"},
      {"", "not a JSON object"},
      {"{\"a\": 1", "invalid JSON: the line ends; expected ',' or '}'"},
      {"{\"a\": 1} {\"b\": 2}", "invalid JSON at byte"},
      {"{\"a\": 01}", "invalid JSON at byte"},
      {"{\"a\": NaN}", "invalid JSON at byte"},
      {"{\"a\": 1,}", "invalid JSON at byte"},
      {"{\"a\": \"\xff\"}", "UTF-8"},
      {"{\"a\": \"\xed\xa0\x80\"}", "UTF-8"},
      {"{\"a\": \"\\ud800\"}", "surrogate"},
      {"{\"a\": \"\x01\"}", "control character"},
      {"{\"a\": 1e999}", "1e999 does not fit into 64 bits"},
      {"{\"a\": -9223372036854775809}", "does not fit"},
      {"{\"a\": \"\\u12g4\"}", "four hexadecimal digits"},
      {"{\"a\": \"\\u12", "four hexadecimal digits"},
      {"{\"a\": \"\\x\"}", "unknown escape"},
      {"{\"a\": \"\\", "unknown escape"},
      {"{\"a\": \"b", "the line ends; expected '\"'"},
      {"{\"a\": .5}", "expected a value"},
      {"{\"a\": 1.}", "digits after the decimal point"},
      {"{\"a\": 1e}", "digits of an exponent"},
      {"{\"a\": tru}", "expected a value"},
      {"{a: 1}", "expected a key in quotes"},
      {"{\"a\" 1}", "expected ':'"},
      {"{\"a\": 99999999999999999999}", "99999999999999999999 does not fit into 64 bits"},
      {"{\"a\": 1, \"b\": 2, \"a\": 1}", "duplicate key \"a\""},
      {"{\"a\": {\"b\": [{\"c\": 1, \"c\": 2}]}}", "duplicate key \"c\""},
  }));
  CAPTURE(line);
  CHECK_THROWS_WITH(parse_row(line), Contains(what));
}

TEST_CASE("a message about a row is one short line of valid UTF-8", "[row]") {
  try {
    parse_row("{\"a\nb\xff" + std::string(100000, 'x'));
    FAIL("invalid JSON was accepted");
  } catch (const RowError& e) {
    const std::string what = e.what();
    CHECK(what.size() < 400);
    CHECK(what.find('\n') == what.npos);
    CHECK(what.find('\xff') == what.npos);
  }
}

TEST_CASE("deep nesting is rejected without using the stack", "[row]") {
  const auto nested = [](int depth) {
    return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  CHECK_NOTHROW(parse_row(nested(199)));
  CHECK_THROWS_WITH(parse_row(nested(200)), Contains("nested deeper than 200"));
  CHECK_THROWS_WITH(parse_row(nested(1000000)), Contains("nested deeper than 200"));
}

TEST_CASE("text in messages is cut between characters", "[row]") {
  CHECK(printable("abc") == "abc");
  CHECK(printable("a\tb\x7f") == "a\\x09b\\x7f");
  CHECK(printable("\u00e9\u00e9\u00e9", 3) == "\u00e9\u00e9...");
  CHECK(printable("\xc3") == "\\xc3");
  CHECK(printable("\xc0\x80\xf4\x90\x80\x80") == "\\xc0\\x80\\xf4\\x90\\x80\\x80");
}

TEST_CASE("lines are taken one by one", "[row]") {
  std::string_view rest = "a\n\r\n\nb";
  CHECK(take_line(rest) == "a");
  CHECK(blank(take_line(rest)));
  CHECK(take_line(rest).empty());
  CHECK(take_line(rest) == "b");
  CHECK(rest.empty());
}
