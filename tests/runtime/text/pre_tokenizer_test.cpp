#include "runtime/text/pre_tokenizer.hpp"

#include <string>
#include <vector>

#include "runtime/text/decoder.hpp"
#include "tests/runtime/text/tokenizer_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::text;
using mgpu::tests::json;
using Strings = std::vector<std::string>;

namespace {

class Words final : public WordSink {
 public:
  void word(std::string_view text) override { words.emplace_back(text); }
  Strings words;
};

Strings split(const json& description, const std::string& text, bool at_start = true) {
  Words sink;
  PreTokenizer(description).split(text, at_start, sink);
  return sink.words;
}

json split_at_dash(const std::string& behavior, bool invert) {
  return {{"type", "Split"},
          {"pattern", {{"String", "-"}}},
          {"behavior", behavior},
          {"invert", invert}};
}

}  // namespace

TEST_CASE("text is split according to the behavior", "[pre_tokenizer]") {
  struct Case {
    const char* behavior;
    bool invert;
    Strings expected;
  };
  const auto [behavior, invert, expected] = GENERATE(values<Case>({
      {"Removed", false, {"a", "b"}},
      {"Removed", true, {"-", "-", "-"}},
      {"Isolated", false, {"a", "-", "-", "b", "-"}},
      {"MergedWithPrevious", false, {"a-", "-", "b-"}},
      {"MergedWithNext", false, {"a", "-", "-b", "-"}},
      {"Contiguous", false, {"a", "--", "b", "-"}},
  }));
  CAPTURE(behavior, invert);
  CHECK(split(split_at_dash(behavior, invert), "a--b-") == expected);
}

TEST_CASE("a sequence splits the words of the previous step", "[pre_tokenizer]") {
  const json sequence = {{"type", "Sequence"},
                         {"pretokenizers",
                          {split_at_dash("Removed", false),
                           {{"type", "Digits"}, {"individual_digits", true}},
                           {{"type", "ByteLevel"}, {"add_prefix_space", true}}}}};
  CHECK(split(sequence, "it's-12") == Strings{" it", "'s", " 1", " 2"});
  CHECK_THROWS_WITH(
      PreTokenizer({{"type", "Sequence"},
                    {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}}),
      "pre_tokenizer Digits after ByteLevel is not supported");
}

TEST_CASE("Metaspace marks spaces and the beginning", "[pre_tokenizer]") {
  const auto metaspace = [](const char* scheme) {
    return json{{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}};
  };
  CHECK(split(metaspace("always"), "a  b", false) == Strings{"▁a", "▁", "▁b"});
  CHECK(split(metaspace("always"), " a") == Strings{"▁a"});
  CHECK(split(metaspace("first"), "a b") == Strings{"▁a", "▁b"});
  CHECK(split(metaspace("first"), "a b", false) == Strings{"a", "▁b"});
  CHECK(split(metaspace("never"), "a b") == Strings{"a", "▁b"});
}

TEST_CASE("words and white space are separated", "[pre_tokenizer]") {
  CHECK(split({{"type", "Whitespace"}}, "a.b  c!") == Strings{"a", ".", "b", "c", "!"});
  CHECK(split({{"type", "WhitespaceSplit"}}, " a.b\u3000c ") == Strings{"a.b", "c"});
  CHECK(split({{"type", "Digits"}}, "a12b") == Strings{"a", "12", "b"});
}

TEST_CASE("decoders turn tokens into text", "[decoder]") {
  const auto decode = [](const json& description, const Strings& tokens) {
    return Decoder(json::parse(description.dump())).decode(tokens);
  };
  CHECK(decode(nullptr, {"a", "b"}) == "a b");
  CHECK(decode({{"type", "ByteLevel"}}, {"Ġa", "Ã", "©", "x y"}) == " aéx y");
  CHECK(decode({{"type", "ByteFallback"}}, {"<0xC3>", "<0xA9>", "a", "<0xC3>"}) == "éa\uFFFD");
  CHECK(decode({{"type", "Strip"}, {"content", "-"}, {"start", 1}, {"stop", 2}}, {"--a---", "-"}) ==
        "-a-");
  CHECK(decode({{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}},
               {"▁a", "b▁c"}) == "ab c");
  CHECK(decode({{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", "x"}}, {"baa"}) ==
        "bx");
}
