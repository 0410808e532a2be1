#include "launcher/lifecycle/text_lines.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;

TEST_CASE("the last line of a text is found whether or not it ends with line breaks", "[lines]") {
  CHECK(last_line("").empty());
  CHECK(last_line("\r\n\n").empty());
  CHECK(last_line("one") == "one");
  CHECK(last_line("one\ntwo") == "two");
  CHECK(last_line("one\ntwo\r\n\n") == "two");
  CHECK(last_line("one\n two ") == " two ");
}

TEST_CASE("at most the wanted number of last lines is shown", "[lines]") {
  CHECK(last_lines("one\ntwo\nthree\n", 2) == "two\nthree");
  CHECK(last_lines("one\ntwo\n", 2) == "one\ntwo");
  CHECK(last_lines("one\n", 2) == "one");
  CHECK(last_lines("\none\n", 1) == "one");
  CHECK(last_lines("\none\n", 2) == "\none");
  CHECK(last_lines("\n\n", 2).empty());
}

TEST_CASE("a text is split at its line feeds", "[lines]") {
  CHECK(lines_of("").empty());
  CHECK(lines_of("one\n\ntwo\n") == std::vector<std::string_view>{"one", "", "two"});
  CHECK(lines_of("one\ntwo") == std::vector<std::string_view>{"one", "two"});
  CHECK(first_line("one\ntwo") == "one");
  CHECK(first_line("one") == "one");
}
