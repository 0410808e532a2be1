#include "runtime/text/bpe.hpp"

#include <string>
#include <vector>

#include "tests/support/catch.hpp"

using namespace mgpu::text;
using Catch::Matchers::Contains;
using Ids = std::vector<std::int32_t>;

namespace {

Vocabulary vocabulary(const std::vector<std::string>& tokens) {
  Vocabulary made;
  for (std::size_t id = 0; id < tokens.size(); ++id) made.add(tokens[id], static_cast<int>(id));
  return made;
}

Bpe bpe(const std::vector<std::string>& tokens, const std::vector<Bpe::Merge>& merges,
        BpeOptions options = {}) {
  return Bpe(vocabulary(tokens), merges, std::move(options));
}

Ids encode(const Bpe& model, const std::string& word) {
  Bpe::Workspace workspace;
  Ids ids;
  model.encode(word, workspace, ids);
  Ids again;
  model.encode(word, workspace, again);  // from the cache
  CHECK(again == ids);
  return ids;
}

}  // namespace

TEST_CASE("the pair with the highest priority is merged first, the leftmost of equal ones",
          "[bpe]") {
  const Bpe model = bpe({"a", "b", "c", "ab", "bc", "aa"}, {{"b", "c"}, {"a", "b"}, {"a", "a"}});
  CHECK(encode(model, "abc") == Ids{0, 4});
  CHECK(encode(model, "aab") == Ids{0, 3});
  CHECK(encode(model, "aaa") == Ids{5, 0});
  CHECK(encode(model, "") == Ids{});
}

TEST_CASE("of a duplicate merge the last is used", "[bpe]") {
  const Bpe model = bpe({"a", "b", "c", "ab", "bc"}, {{"a", "b"}, {"b", "c"}, {"a", "b"}});
  CHECK(encode(model, "abc") == Ids{0, 4});
}

TEST_CASE("encoding a long word does not take quadratic time", "[bpe]") {
  const Bpe model = bpe({"a", "aa", "aaaa"}, {{"a", "a"}, {"aa", "aa"}});
  CHECK(encode(model, std::string(1'000'000, 'a')) == Ids(250'000, 2));
}

TEST_CASE("unknown characters become one token each, or one token in total", "[bpe]") {
  const std::vector<std::string> tokens = {"<unk>", "a"};
  CHECK(encode(bpe(tokens, {}, {.unk_token = "<unk>"}), "xéayz") == Ids{0, 0, 1, 0, 0});
  CHECK(encode(bpe(tokens, {}, {.unk_token = "<unk>", .fuse_unk = true}), "xéayz") == Ids{0, 1, 0});
  CHECK(encode(bpe(tokens, {}), "xay") == Ids{1});
  CHECK_THROWS_WITH(encode(bpe(tokens, {}, {.unk_token = "[UNK]"}), "x"), Contains("[UNK]"));
}

TEST_CASE("an unknown character falls back to its bytes if all have tokens", "[bpe]") {
  const Bpe model = bpe({"<unk>", "a", "<0xC3>", "<0xA9>"}, {},
                        {.unk_token = "<unk>", .fuse_unk = true, .byte_fallback = true});
  CHECK(encode(model, "aé") == Ids{1, 2, 3});
  CHECK(encode(model, "xyé") == Ids{2, 3, 0});  // the bytes come first, as in HF's tokenizers
}

TEST_CASE("a byte-level word is encoded by its bytes' letters", "[bpe]") {
  const std::vector<std::string> tokens = {"Ġ", "a", "Ã", "©", "Ã©", "Ġa©"};
  CHECK(encode(bpe(tokens, {{"Ã", "©"}}, {.byte_level = true}), " aé") == Ids{0, 1, 4});

  SECTION("and with ignore_merges a known word is one token") {
    const BpeOptions options{.ignore_merges = true, .byte_level = true};
    CHECK(encode(bpe(tokens, {}, options), " a\xA9") == Ids{5});
  }
}

TEST_CASE("words are not split at SentencePiece's space if a merge crosses it", "[bpe]") {
  const std::vector<std::string> tokens = {"▁", "a", "▁a", "a▁", "▁▁"};
  const Bpe apart = bpe(tokens, {{"▁", "▁"}, {"▁", "a"}});
  CHECK(encode(apart, "▁a▁▁▁a") == Ids{2, 4, 2});
  const Bpe across = bpe(tokens, {{"a", "▁"}, {"▁", "a"}});
  CHECK(encode(across, "▁a▁a") == Ids{0, 3, 1});
}

TEST_CASE("a vocabulary that is inconsistent with itself or its merges is rejected", "[bpe]") {
  Vocabulary made = vocabulary({"a"});
  CHECK_THROWS_WITH(made.add("b", 0), Contains("\"a\" and \"b\" have the same id 0"));
  CHECK_THROWS_WITH(made.add("a", 1), Contains("duplicate token \"a\" with ids 0 and 1"));
  CHECK_THROWS_WITH(made.add("c", -1), Contains("has id -1"));
  CHECK_THROWS_WITH(made.add("c", std::int64_t{1} << 40), Contains("ids must be from 0 to"));
  CHECK_THROWS_WITH(bpe({"a", "b"}, {{"a", "b"}}), Contains("merge 0") && Contains("\"ab\""));
}

TEST_CASE("a full cache is cleared and used again", "[bpe]") {
  WordCache cache;
  for (int i = 0; i < 100'000; ++i) {
    const std::string word = std::to_string(i);
    if (!cache.find(word, hash_of(word)).data()) cache.put(word, hash_of(word), Ids{i});
    REQUIRE(cache.find(word, hash_of(word)).front() == i);
  }
  CHECK_FALSE(cache.find("0", hash_of("0")).data());
}
