#include "runtime/text/tokenizer_trainer.hpp"

#include <string>
#include <utility>
#include <vector>

#include "runtime/text/bpe_trainer.hpp"
#include "runtime/text/tokenizer.hpp"
#include "runtime/text/word_counts.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::text;
using Catch::Matchers::Contains;

namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

Merges merges_of(const std::vector<std::pair<std::string, int>>& words, std::size_t tokens,
                 std::int64_t min_frequency = 1) {
  WordCounts counts;
  for (const auto& [word, count] : words) counts.add(word, count);
  return learn_bpe(counts, {.vocab_size = 256 + tokens, .min_frequency = min_frequency}).merges;
}

Tokenizer trained(TokenizerKind kind, const std::string& text, std::size_t vocab_size) {
  TokenizerText source(kind);
  source.read(text);
  const auto made = train_tokenizer(source, {.kind = kind, .vocab_size = vocab_size});
  return Tokenizer::parse(made.files.at("tokenizer.json"), made.files.at("tokenizer_config.json"));
}

}  // namespace

TEST_CASE("words are counted over all parts", "[tokenizer_trainer]") {
  WordCounts counts, others;
  for (int i = 0; i < 5000; ++i) counts.add("w" + std::to_string(i % 2500));
  others.add("w0", 3);
  others.add("new");
  counts.add(others);
  CHECK(counts.size() == 2501);
  const auto sorted = counts.sorted();
  CHECK(sorted.front() == std::pair<std::string_view, std::int64_t>("new", 1));
  CHECK(sorted[1] == std::pair<std::string_view, std::int64_t>("w0", 5));
  CHECK(sorted.back() == std::pair<std::string_view, std::int64_t>("w999", 2));
}

TEST_CASE("the most frequent pair is merged first, of equal ones that of the lowest ids",
          "[tokenizer_trainer]") {
  CHECK(merges_of({{"roses", 1}, {"are", 2}, {"red", 1}, {"is", 2}}, 3, 2) ==
        Merges{{"r", "e"}, {"a", "re"}, {"i", "s"}});
  CHECK(merges_of({{"ab", 2}, {"cd", 2}}, 1) == Merges{{"a", "b"}});
  CHECK(merges_of({{"ab", 2}, {"cd", 3}}, 1) == Merges{{"c", "d"}});
}

TEST_CASE("a repeated letter is merged from the left", "[tokenizer_trainer]") {
  CHECK(merges_of({{"aaaaa", 1}}, 9) == Merges{{"a", "a"}, {"aa", "a"}, {"aa", "aaa"}});
}

TEST_CASE("training ends when no pair is frequent enough", "[tokenizer_trainer]") {
  CHECK(merges_of({{"ab", 2}, {"cd", 1}}, 100, 2) == Merges{{"a", "b"}});
  CHECK(merges_of({{"a", 7}}, 100).empty());
  CHECK_THROWS_WITH(learn_bpe({}, {.vocab_size = 258, .special_tokens = {"a", "b", "c"}}),
                    Contains("need at least 259"));
}

TEST_CASE("a trained tokenizer encodes any text and decodes it again", "[tokenizer_trainer]") {
  const auto tokenizer = trained(TokenizerKind::bpe, "low lower lowest low low\n", 270);
  CHECK(tokenizer.eos_id() == 0);
  CHECK(tokenizer.pad_id() == 0);
  CHECK(tokenizer.id_of("<|im_end|>") == 2);
  CHECK(tokenizer.encode("low", false).size() == 1);
  const std::string text = "never seen: \xF0\x9F\x98\x80\n";
  CHECK(tokenizer.decode(tokenizer.encode(text, false), false) == text);
}

TEST_CASE("a tokenizer of characters has the most frequent ones and one for all others",
          "[tokenizer_trainer]") {
  const auto tokenizer = trained(TokenizerKind::characters,
                                 "bbb\xC3\xA9\xC3\xA9\xC3\xA9"
                                 "aac",
                                 7);
  CHECK(tokenizer.size() == 7);
  CHECK(tokenizer.unk_id() == 3);
  CHECK(tokenizer.encode("ab\xC3\xA9"
                         "c",
                         false) == std::vector<std::int32_t>{4, 5, 6, 3});
  CHECK(tokenizer.decode(std::vector<std::int32_t>{5, 6}, false) == "b\xC3\xA9");
}

TEST_CASE("training text that is not UTF-8 is rejected with the position", "[tokenizer_trainer]") {
  TokenizerText text(GENERATE(TokenizerKind::bpe, TokenizerKind::characters));
  CHECK_THROWS_WITH(text.read("ab\xFF"), "byte 3 is not valid UTF-8");
}
