#include "runtime/rl/item_tokens.hpp"

#include <fstream>
#include <string>

#include "runtime/rl/group_selection.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::rl;
using Catch::Matchers::Contains;

namespace {

using Tokens = std::vector<std::int32_t>;

struct Vocabulary {
  tests::TempDir dir;
  text::Tokenizer tokenizer = text::Tokenizer::load(tests::in_sources("docs/examples/tokenizer"));

  Vocabulary() { tokenizer.add_tokens({"<a_1>", "<b_1>", "<b_2>"}, false); }

  ItemTokens items(const std::string& lines, std::int64_t vocab_size = 1000) const {
    const auto path = dir.path("items.txt");
    std::ofstream(path) << lines;
    return ItemTokens(rewards::ItemList::read(path), tokenizer, 0, vocab_size);
  }
  std::int32_t id(const char* token) const { return tokenizer.id_of(token).value(); }
};

}  // namespace

TEST_CASE("an item's tokens are its parts, a line feed and the end", "[items]") {
  const Vocabulary vocabulary;
  const auto items = vocabulary.items("<a_1><b_1>\tt\t0\n<a_1><b_2>\tt\t1\n<a_1><b_1>\tt\t2\n");
  const auto feed = vocabulary.tokenizer.encode("\n", false).at(0);
  const auto first = vocabulary.id("<a_1>"), second = vocabulary.id("<b_1>");
  REQUIRE(items.all().size() == 2);
  CHECK(items.all()[0] == Tokens{first, second, feed});
  CHECK(items.completion_of("<a_1><b_1>\n") == Tokens{first, second, feed, 0});
  CHECK(items.completion_of("<a_1>").empty());
}

TEST_CASE("an item whose name is the beginning of another name has a completion of its own",
          "[items]") {
  const Vocabulary vocabulary;
  const auto items = vocabulary.items("<a_1>\tt\t0\n<a_1><b_1>\tt\t1\n");
  CHECK(items.all()[0].size() == 2);
  CHECK(items.all()[1].size() == 3);
  CHECK(items.all()[0][1] != items.all()[1][1]);
}

TEST_CASE("a catalogue of one item has one completion", "[items]") {
  CHECK(Vocabulary().items("<a_1>\tt\t0\n").all().size() == 1);
}

TEST_CASE("an item with unknown tokens is refused with its line", "[items]") {
  const Vocabulary vocabulary;
  CHECK_THROWS_WITH(vocabulary.items("<a_1>\tt\t0\n<a_1><b_9>\tt\t1\n"),
                    Contains("items.txt:2: <b_9> is not a token of the model's vocabulary"));
  CHECK_THROWS_WITH(vocabulary.items("<a_1><b_2>\tt\t0\n", 275),
                    Contains("items.txt:1: token 276 of <a_1><b_2> has no row in the model's "
                             "embeddings, which have 275"));
}

TEST_CASE("an item that completions cannot show is refused with its line", "[items]") {
  Vocabulary vocabulary;
  vocabulary.tokenizer.add_tokens({"<s_1>"}, true);
  CHECK_THROWS_WITH(
      vocabulary.items("<a_1>\tt\t0\n<a_1><s_1>\tt\t1\n"),
      Contains("items.txt:2: a completion of <a_1><s_1> reads <a_1>, so no completion"));
  CHECK_THROWS_WITH(vocabulary.items("<s_1>\tt\t0\n"),
                    Contains("items.txt:1: a completion of <s_1> reads as nothing"));
}

TEST_CASE("a plain name is encoded as text", "[items]") {
  const Vocabulary vocabulary;
  const auto items = vocabulary.items("a drill\tt\t0\n");
  const auto tokens = items.all().at(0);
  CHECK(vocabulary.tokenizer.decode(tokens, false) == "a drill\n");
}

TEST_CASE("dynamic sampling keeps the hits and then varied completions", "[items]") {
  using Numbers = std::vector<std::size_t>;
  const auto chosen = [](std::vector<std::string_view> texts, std::size_t group) {
    return varied_completions(texts, "t\n", group);
  };
  CHECK(generated_for(4) == 6);
  CHECK(generated_for(5) == 7);
  // c is the most frequent of the others, a and b follow in the order of their first completion.
  CHECK(chosen({"a", "c", "t\n", "b", "c", "c"}, 4) == Numbers{2, 1, 0, 3});
  CHECK(chosen({"a", "a", "a", "b", "b", "a"}, 4) == Numbers{0, 3, 1, 4});
  CHECK(chosen({"t", "t", "x", "t", "t", "t"}, 4) == Numbers{0, 1, 3, 4});
  CHECK(chosen({"x", "x", "x"}, 2) == Numbers{0, 1});
}
