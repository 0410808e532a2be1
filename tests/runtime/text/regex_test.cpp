#include "runtime/text/regex.hpp"

#include <sys/resource.h>

#include <string>
#include <vector>

#include "tests/support/catch.hpp"

using namespace mgpu::text;
using Catch::Matchers::Contains;

namespace {

std::vector<std::string> matches(const Regex& regex, const std::string& text) {
  std::vector<std::string> found;
  for_each_match(regex, text,
                 [&](const Match& m) { found.push_back(text.substr(m.begin, m.end - m.begin)); });
  return found;
}

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("classes are those of Unicode 16, independent of the library's version", "[regex]") {
  CHECK(matches(Regex(R"(\p{L}+)"), "a\u1c89\U00031350 1") == Strings{"a\u1c89\U00031350"});
  CHECK(matches(Regex(R"([^\s\p{L}]+)"), "a\u1c89-") == Strings{"-"});
  CHECK(matches(Regex(R"(\P{L}+)"), "a\u1c89-") == Strings{"-"});
  CHECK(matches(Regex(R"(\p{N})"), "1\U00010d40") == Strings{"1", "\U00010d40"});
  CHECK(matches(Regex(R"(\s+)"), "a \u0085\u3000\u180e") == Strings{" \u0085\u3000"});
  CHECK(matches(Regex(R"([\s]+|\S+)"), "a\u180e b") == Strings{"a\u180e", " ", "b"});
  CHECK(matches(Regex(R"(\w+)"), "a\u0301_\u00b2-x") == Strings{"a\u0301_\u00b2", "x"});
  CHECK(matches(Regex(R"(\bx\b)"), "x x\u0301 x") == Strings{"x", "x"});
}

TEST_CASE("case-insensitive letters match by Unicode case folding", "[regex]") {
  CHECK(matches(Regex("(?i:'s|'k)"), "'S 'ſ '\u212a") == Strings{"'S", "'ſ", "'\u212a"});
}

TEST_CASE("line anchors and dots behave as in Oniguruma", "[regex]") {
  CHECK(matches(Regex("^a$"), "a\nb\na") == Strings{"a", "a"});
  CHECK(matches(Regex("a.b"), "a\nb") == Strings{});
  CHECK(matches(Regex("(?m:a.b)"), "a\nb") == Strings{"a\nb"});
  CHECK(matches(Regex(R"(\u0041[\u0042-\u0043])"), "AC") == Strings{"AC"});
}

TEST_CASE("an empty match is reported once", "[regex]") {
  CHECK(matches(Regex("x*"), "axb") == Strings{"", "x", ""});
  CHECK(matches(Regex("(?=é)"), "aéé") == Strings{"", ""});
}

TEST_CASE("a literal matches itself", "[regex]") {
  CHECK(matches(Regex::literal("a.[é"), "a.[é axxé") == Strings{"a.[é"});
}

TEST_CASE("constructs with another meaning in PCRE2 are rejected", "[regex]") {
  struct Case {
    const char* pattern;
    const char* why;
  };
  const auto [pattern, why] = GENERATE(values<Case>({
      {"a{2,3}+", "{n,m}+ is not supported"},
      {R"(\h)", "\\h is not supported"},
      {"[a[bc]]", "a set within a set is not supported"},
      {"[a-z&&b]", "&& within a set is not supported"},
      {R"([\W])", "\\W within a set is not supported"},
      {R"(\xff)", "\\x of a byte that is not ASCII"},
      {"(", "cannot use the pattern ("},
      {"a\\", "ends in a backslash"},
      {R"(\p{Nope})", "unknown property"},
  }));
  CAPTURE(pattern);
  CHECK_THROWS_WITH(Regex(pattern), Contains(why));
}

TEST_CASE("a long run of white space is split quickly", "[regex]") {
  const std::string text = std::string(200000, ' ') + "x";
  const Regex qwen(R"(\s*[\r\n]+|\s+(?!\S)|\s+|\S)");
  CHECK(matches(qwen, text).size() == 3);
}

TEST_CASE("a small pattern and a long row cannot take gigabytes", "[regex]") {
  // Each repetition keeps a frame with room for all groups.
  std::string pattern = "(?:(a)|(b))*[xz]";
  for (int i = 0; i < 400; ++i) pattern += "()";
  const Regex regex = Regex::of_pcre2(pattern);
  const std::string text(60'000, 'a');
  Match match;
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  CHECK_THROWS_WITH(regex.find(text, 0, match), Catch::Matchers::Contains("limit exceeded"));
  ::getrusage(RUSAGE_SELF, &after);
  CHECK(after.ru_maxrss - before.ru_maxrss < 100'000);  // KiB
}
