#include "rendezvous/base/printable.hpp"

#include "rendezvous/base/spelling.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;

TEST_CASE("printable text keeps what a person can read", "[printable]") {
  for (const char* text : {"", "plain ~ text",
                           "Gr\xc3\xbc\xc3\x9f"
                           "e",
                           "\xe4\xb8\xad\xe6\x96\x87", "\xf0\x9f\x98\x80 \xc2\xa0"})
    CHECK(printable(text) == text);
}

TEST_CASE("printable text cannot control a terminal", "[printable]") {
  CHECK(printable("a\x1b]0;title\x07"
                  "b") == "a?]0;title?b");
  CHECK(printable("one\ntwo\rthree\x7f") == "one?two?three?");
  CHECK(printable("\xc2\x9b"
                  "31m \xc2\x80\xc2\x9f") == "?31m ??");  // C1, as UTF-8
  CHECK(printable("\x9b"
                  "31m") == "?31m");  // C1, as a byte
  CHECK(printable("\xe2\x80\xae"
                  "abc\xe2\x81\xa6") == "?abc?");  // right to left
  CHECK(printable("a\xd8\x9c"
                  "b\xe2\x80\x8e") == "a?b?");  // marks of direction
  CHECK(printable(std::string_view("a\0b", 3)) == "a?b");
  CHECK(printable("tab\there") == "tab?here");
}

TEST_CASE("colours are removed from a program's output", "[printable]") {
  CHECK(printable_output("\x1b[1;31mError\x1b[0m:\tx\x1b[2J\x1b[K") == "Error: x");
  CHECK(printable_output("\x1b[31") == "?[31");
  CHECK(printable_output("\x1b[3\x1b[m") == "?[3");
  CHECK(printable_output("\x1b"
                         "c\x1b]0;t\x07") == "?c?]0;t?");
  CHECK(printable("\x1b[31mred") == "?[31mred");
}

TEST_CASE("bytes that are not UTF-8 are replaced in printable text", "[printable]") {
  CHECK(printable("\xff\xc3") == "??");
  CHECK(printable("\xc0\xaf \xe0\x80\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xc3(") ==
        "?? ??? ??? ???? ?(");
}

TEST_CASE("a program's output keeps its line feeds", "[printable]") {
  CHECK(printable_output("one\ntwo\r\n\x1b[1mthree\x1b[m\n") == "one\ntwo?\nthree\n");
}

TEST_CASE("what is shown of user input is printable", "[printable]") {
  CHECK(shown("a\xc2\x9b"
              "b") == "a?b");
  CHECK(shown("\x1b[31mred") == "?[31mred");
}
