#include "launcher/lifecycle/error_file.hpp"

#include <sys/stat.h>

#include <fstream>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;

TEST_CASE("both formats of torchrun's error files are read", "[error_file]") {
  CHECK(parse_error_file(R"({"message": {"message": "ValueError: boom", "extraInfo":
      {"py_callstack": "Traceback x", "timestamp": "1795160644"}, "errorCode": 3}})") ==
        ErrorFile{"ValueError: boom", "Traceback x", 1795160644, 3});
  CHECK(parse_error_file(R"({"message": "text", "timestamp": 123})") ==
        ErrorFile{"text", "", 123, std::nullopt});
}

TEST_CASE("an error file that was written reads back the same", "[error_file]") {
  const ErrorFile error{"a \"b\"\n\xc3\xa9", "Traceback", 17, 5};
  CHECK(parse_error_file(to_json(error)) == error);
  SECTION("also with bytes that are not UTF-8") {
    CHECK(parse_error_file(to_json({"\xff\xfe", "", 1, {}})).has_value());
  }
}

TEST_CASE("a file that is no error file is ignored", "[error_file]") {
  const auto text =
      GENERATE(as<std::string>(), "", "{", "[]", "null", "{}", R"({"message": 3})",
               R"({"message": {}})", R"({"message": {"message": 3}})", std::string(100'000, '['));
  CHECK_FALSE(parse_error_file(text).has_value());
}

TEST_CASE("a FIFO in place of an error file does not block", "[error_file]") {
  const mgpu::tests::TempDir dir;
  REQUIRE(::mkfifo(dir.path("error.json").c_str(), 0600) == 0);
  CHECK_FALSE(read_error_file(dir.path("error.json")));
}

TEST_CASE("an error file is read up to 1 MiB and a missing one is ignored", "[error_file]") {
  mgpu::tests::TempDir dir;
  CHECK_FALSE(read_error_file(dir.path("none")).has_value());
  std::ofstream(dir.path("big")) << "{\"message\": \"" << std::string(2 << 20, 'x') << "\"}";
  CHECK_FALSE(read_error_file(dir.path("big")).has_value());
  std::ofstream(dir.path("good")) << R"({"message": "x"})";
  CHECK(read_error_file(dir.path("good"))->message == "x");
}
