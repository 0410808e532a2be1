#include "rendezvous/base/json_field.hpp"

#include <limits>

#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using nlohmann::json;

TEST_CASE("a field is read if it has the type and is within its range", "[json_field]") {
  const json object = json::parse(
      R"({"small": 7, "negative": -7, "large": 9223372036854775808, "text": "t", "flag": true,
          "fraction": 1.5, "none": null})");
  SECTION("numbers") {
    int number = 1;
    CHECK(read_field(object, "small", number) == FieldState::read);
    CHECK(number == 7);
    for (const char* name : {"large", "text", "flag", "fraction", "none"}) {
      CAPTURE(name);
      CHECK(read_field(object, name, number) == FieldState::wrong_type);
    }
    CHECK(read_field(object, "other", number) == FieldState::absent);
    CHECK(number == 7);
    std::uint64_t large = 0;
    CHECK(read_field(object, "large", large) == FieldState::read);
    CHECK(large == 9223372036854775808U);
    CHECK(read_field(object, "negative", large) == FieldState::wrong_type);
  }
  SECTION("texts and truth values") {
    std::string text;
    bool flag = false;
    CHECK(read_field(object, "text", text) == FieldState::read);
    CHECK(text == "t");
    CHECK(read_field(object, "small", text) == FieldState::wrong_type);
    CHECK(read_field(object, "flag", flag) == FieldState::read);
    CHECK(flag);
    CHECK(read_field(object, "small", flag) == FieldState::wrong_type);
  }
  SECTION("durations, in their unit") {
    std::chrono::microseconds time = 1us;
    CHECK(read_field(object, "negative", time) == FieldState::read);
    CHECK(time == -7us);
    CHECK(read_field(object, "large", time) == FieldState::wrong_type);
    CHECK(read_field(object, "text", time) == FieldState::wrong_type);
    CHECK(time == -7us);
  }
}

TEST_CASE("a field that was written is read as it was", "[json_field]") {
  json object;
  write_field(object, "number", std::numeric_limits<std::int64_t>::min());
  write_field(object, "text", std::string("t"));
  write_field(object, "time", std::chrono::nanoseconds(5ms));
  CHECK(object["time"] == 5'000'000);
  std::int64_t number = 0;
  std::string text;
  std::chrono::nanoseconds time{};
  read_field(object, "number", number);
  read_field(object, "text", text);
  read_field(object, "time", time);
  CHECK(number == std::numeric_limits<std::int64_t>::min());
  CHECK(text == "t");
  CHECK(time == 5ms);
}
