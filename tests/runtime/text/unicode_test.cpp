#include "runtime/text/unicode.hpp"

#include <string>

#include "runtime/text/byte_alphabet.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::text;

TEST_CASE("the first byte that is not UTF-8 is found", "[unicode]") {
  struct Case {
    std::string bytes;
    std::optional<std::size_t> expected;
  };
  const auto [bytes, expected] = GENERATE(values<Case>({
      {"", std::nullopt},
      {"plain text of more than eight bytes", std::nullopt},
      {"é日\U0001F600\U0010FFFF", std::nullopt},
      {"abcdefghij\xFF", 10},
      {"ab\x80", 2},
      {"\xC0\x80", 0},          // overlong
      {"\xE0\x9F\xBF", 0},      // overlong
      {"a\xED\xA0\x80", 1},     // a surrogate
      {"\xF4\x90\x80\x80", 0},  // past U+10FFFF
      {"é\xE6\x97", 2},         // cut off
      {"\xF0\x9F\x98x", 0},
  }));
  CAPTURE(bytes);
  CHECK(first_invalid_utf8(bytes) == expected);
}

TEST_CASE("each maximal ill-formed part becomes one replacement character", "[unicode]") {
  CHECK(to_valid_utf8("a\xE6\x97z") == "a\uFFFDz");
  CHECK(to_valid_utf8("\xFF\xFE") == "\uFFFD\uFFFD");
  CHECK(to_valid_utf8("\xED\xA0\x80") == "\uFFFD\uFFFD\uFFFD");
  CHECK(to_valid_utf8("\xF0\x9F\x98\x80\xF0\x9F\x98") == "\U0001F600\uFFFD");
}

TEST_CASE("code points are read forwards and backwards, and written", "[unicode]") {
  std::string text;
  for (const char32_t c : {U'a', U'\u00e9', U'\u65e5', U'\U0001F600'}) append_utf8(c, text);
  CHECK(text == "aé日\U0001F600");
  CHECK(code_point_at(text, 1).value == U'\u00e9');
  CHECK(code_point_before(text, text.size()).value == U'\U0001F600');
  CHECK(code_point_before(text, text.size()).size == 4);
  CHECK(code_point_before(text, 1).value == U'a');
}

TEST_CASE("NFC composes text", "[unicode]") {
  struct Case {
    std::string text, expected;
  };
  const auto [text, expected] = GENERATE(values<Case>({
      {"plain", "plain"},
      {"e\u0301", "\u00e9"},
      {"\u0301e\u0301x", "\u0301\u00e9x"},
      {"a\u0323\u0302", "\u1ead"},
      {"a\u0302\u0323", "\u1ead"},  // marks are put in order first
      {"\u212b", "\u00c5"},
      {"\u1100\u1161\u11a8", "\uac01"},
      {"\uac00\u11a8", "\uac01"},
      {"\u0958", "\u0915\u093c"},  // excluded from composition
      {"e\u0301e\u0301", "\u00e9\u00e9"},
      {"日本語e\u0301語", "日本語\u00e9語"},
  }));
  CAPTURE(text);
  CHECK(nfc(text) == expected);
}

TEST_CASE("passes_nfc_quick_check is false only for text that may change", "[unicode]") {
  CHECK(passes_nfc_quick_check("plain"));
  CHECK(passes_nfc_quick_check("na\u00efve 日本語 한국어 \U0001F600"));
  CHECK_FALSE(passes_nfc_quick_check("e\u0301"));
  CHECK_FALSE(passes_nfc_quick_check("\u212b"));
  CHECK_FALSE(passes_nfc_quick_check("\u1100\u1161"));
}

TEST_CASE("code points newer than HF's normalizer stay in place", "[unicode]") {
  // U+0898 has combining class 220 since Unicode 14: it would go before U+0301, of class 230.
  CHECK(nfc("a\u0301\u0898") == "\u00e1\u0898");
  CHECK(nfc("a\u0898\u0301") == "a\u0898\u0301");
  CHECK(nfc("\u0301\u0898\u0323") == "\u0301\u0898\u0323");
  CHECK(nfc("\U00011935\U00011930") == "\U00011935\U00011930");
}

TEST_CASE("every byte has its own letter", "[unicode]") {
  CHECK(to_byte_letters(" a\n\xC3") == "ĠaĊÃ");
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string& letter = byte_letters()[byte];
    CHECK(byte_of_letter(code_point_at(letter, 0).value) == byte);
  }
  CHECK_FALSE(byte_of_letter(U' '));
  CHECK_FALSE(byte_of_letter(U'\u65e5'));
}
