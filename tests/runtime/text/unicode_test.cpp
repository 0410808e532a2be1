#include "runtime/text/unicode.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include <utf8proc.h>

#include "runtime/text/byte_alphabet.hpp"
#include "runtime/text/graphemes.hpp"
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
  CHECK(normalized(text, Form::nfc) == expected);
}

TEST_CASE("passes_quick_check is false only for text that may change", "[unicode]") {
  CHECK(passes_quick_check("plain", Form::nfc));
  CHECK(passes_quick_check("na\u00efve 日本語 한국어 \U0001F600", Form::nfc));
  CHECK_FALSE(passes_quick_check("e\u0301", Form::nfc));
  CHECK_FALSE(passes_quick_check("\u212b", Form::nfc));
  CHECK_FALSE(passes_quick_check("\u1100\u1161", Form::nfc));
}

TEST_CASE("code points newer than HF's normalizer stay in place", "[unicode]") {
  // U+0898 has combining class 220 since Unicode 14: it would go before U+0301, of class 230.
  CHECK(normalized("a\u0301\u0898", Form::nfc) == "\u00e1\u0898");
  CHECK(normalized("a\u0898\u0301", Form::nfc) == "a\u0898\u0301");
  CHECK(normalized("\u0301\u0898\u0323", Form::nfc) == "\u0301\u0898\u0323");
  CHECK(normalized("\U00011935\U00011930", Form::nfc) == "\U00011935\U00011930");
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

TEST_CASE("the other normal forms decompose text and replace compatible characters", "[unicode]") {
  struct Case {
    std::string text;
    Form form;
    std::string expected;
  };
  const auto [text, form, expected] = GENERATE(values<Case>({
      {"plain", Form::nfkd, "plain"},
      {"x\u00e9y", Form::nfd, "xe\u0301y"},
      {"\uac01", Form::nfd, "\u1100\u1161\u11a8"},
      {"\ufb01\u2460\u00b5", Form::nfd, "\ufb01\u2460\u00b5"},
      {"\ufb01\u2460\u00b5\uff21", Form::nfkc, "fi1\u03bcA"},
      {"\u212b\u1e9b\u0323", Form::nfkc, "\u00c5\u1e69"},
      {"\u212b\u1e9b\u0323", Form::nfkd, "A\u030as\u0323\u0307"},
      {"a\u0301\u0323", Form::nfd, "a\u0323\u0301"},
  }));
  CAPTURE(text, expected);
  CHECK(normalized(text, form) == expected);
  CHECK(passes_quick_check(text, form) == (text == expected));
}

TEST_CASE("many marks in a row are ordered as few are, in time in proportion to their number",
          "[unicode]") {
  const auto [form, options] = GENERATE(table<Form, int>({
      {Form::nfc, UTF8PROC_COMPOSE},
      {Form::nfd, UTF8PROC_DECOMPOSE},
      {Form::nfkc, UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
      {Form::nfkd, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
  }));
  const std::u32string some =
      U"\u0301\u0323\u0327\u0344\u0345\u0340\u0F71\u0F72\u0F73\u0F75\u0F81"
      U"\u05B0\u3099\u0338\u0301\u0323";
  const std::u32string starters = U"e\u00e9\uAC00\u1100\u1161\u11A8\uFB01\u1EA1\u304B\uFDFA";
  std::minstd_rand random(1);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (std::size_t size = 20 + random() % 90; size > 0; --size) {
      const auto& from = random() % 40 == 0 ? starters : some;
      append_utf8(from[random() % from.size()], text);
    }
    utf8proc_uint8_t* result = nullptr;
    utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                 static_cast<utf8proc_ssize_t>(text.size()), &result,
                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
    REQUIRE(result);
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
    CAPTURE(text);
    CHECK(normalized(text, form) ==
          std::string(reinterpret_cast<const char*>(result),
                      std::strlen(reinterpret_cast<const char*>(result))));
  }

  std::string text = "a";
  for (int i = 0; i < 500'000; ++i) append_utf8(i % 2 == 0 ? 0x301 : 0x323, text);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(normalized(text, form).size() >= text.size() - 4);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

TEST_CASE("newer compatible characters stay as in HF's normalizers", "[unicode]") {
  CHECK(normalized("\u32ff\U0001FBF0\uab69", Form::nfkc) == "\u32ff\U0001FBF0\uab69");
  CHECK(normalized("\U00011938", Form::nfd) == "\U00011938");
}

TEST_CASE("grapheme clusters end where Unicode's rules break the text", "[unicode]") {
  struct Case {
    std::string text;
    std::size_t first;  // bytes of the first cluster
  };
  const auto [text, first] = GENERATE(values<Case>({
      {"ab", 1},
      {"\r\n", 2},
      {"\n\u0301", 1},
      {"e\u0301\u0323x", 5},
      {"\u0600a", 3},
      {"\u0600\n", 2},
      {"\u1100\u1161\u11a8\u1100", 9},
      {"\uac00\u11a8", 6},
      {"\uac01\u1161", 3},
      {"\U0001F1E9\U0001F1EA\U0001F1EB", 8},
      {"\u2764\u200d\U0001F525", 10},
      {"a\u200d\U0001F525", 4},
      {"\u0915\u094d\u0915", 9},
      {"\u0915\u200c\u094d\u0915", 9},
      {"\u0915\u0903\u0915", 6},
  }));
  CAPTURE(text);
  CHECK(grapheme_end(text, 0) == first);
}
