#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/base64.hpp"
#include "runtime/text/unigram.hpp"
#include "tests/runtime/text/tokenizer_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

json scored(const std::string& text, double score) {
  return json::array({text, score});
}

json unigram_file() {
  return {{"added_tokens", json::array({added_token(0, "<unk>", {{"special", true}})})},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", nullptr},
          {"model",
           {{"type", "Unigram"},
            {"unk_id", 0},
            {"vocab", json::array({scored("<unk>", 0), scored("a", -1), scored("b", -1),
                                   scored("ab", -1.5), scored("abb", -4), scored("ba", -1.5)})}}}};
}

std::string little_endian_words(const std::vector<std::uint32_t>& words) {
  std::string bytes;
  for (const auto word : words)
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(word >> shift));
  return bytes;
}

// A table that replaces "A" by "ab".
std::vector<std::uint32_t> trie_of_a() {
  std::vector<std::uint32_t> units(600);
  units[0] = 256u << 10;
  units[256 ^ 'A'] = ((256u ^ 'A') ^ 512u) << 10 | 1u << 8 | 'A';
  units[512] = 1u << 31;
  return units;
}

json precompiled(const std::string& table) {
  return {{"type", "Precompiled"}, {"precompiled_charsmap", rendezvous::to_base64(table)}};
}

std::string table_of(const std::vector<std::uint32_t>& units, const std::string& replacements) {
  return little_endian_words({static_cast<std::uint32_t>(units.size() * 4)}) +
         little_endian_words(units) + replacements;
}

}  // namespace

TEST_CASE("Unigram divides a word into the pieces with the highest score", "[unigram]") {
  const auto unigram = tokenizer(unigram_file());
  CHECK(unigram.encode("ab", false) == Ids{3});
  CHECK(unigram.encode("abb", false) == Ids{3, 2});  // -2.5, better than -4
  CHECK(unigram.encode("aba", false) == Ids{1, 5});  // as good as ab, a, and found first
  CHECK(unigram.encode("", false).empty());
}

TEST_CASE("unknown characters in a row are one unknown token or their bytes", "[unigram]") {
  json file = unigram_file();
  CHECK(tokenizer(file).encode("xéya", false) == Ids{0, 1});
  SECTION("as bytes, if all of them are pieces") {
    file["model"]["byte_fallback"] = true;
    file["model"]["vocab"].push_back(scored("<0x78>", -9));
    CHECK(tokenizer(file).encode("xxa", false) == Ids{6, 6, 1});
    CHECK(tokenizer(file).encode("xya", false) == Ids{0, 1});
  }
  SECTION("without an unknown token such a text is an error") {
    file["model"]["unk_id"] = nullptr;
    CHECK(tokenizer(file).encode("ab", false) == Ids{3});
    CHECK_THROWS_WITH(tokenizer(file).encode("x", false), Contains("has no unk_id"));
  }
}

TEST_CASE("a file without the model's type is Unigram if its vocabulary is a list", "[unigram]") {
  json file = unigram_file();
  file["model"].erase("type");
  CHECK(tokenizer(file).encode("ab", false) == Ids{3});
}

TEST_CASE("a Unigram model that is not valid is rejected by its field", "[unigram]") {
  struct Case {
    const char* pointer;
    json value;
    const char* why;
  };
  const auto [pointer, value, why] = GENERATE(values<Case>({
      {"/model/vocab", {{"a", 1}}, "\"vocab\" of model Unigram must be a list"},
      {"/model/vocab/1", json::array({"a"}), "piece 1 of \"vocab\" must be"},
      {"/model/vocab/1", json::array({"a", "b"}), "piece 1 of \"vocab\" must be"},
      {"/model/vocab/1", json::array({"a", 1, 2}), "piece 1 of \"vocab\" must be"},
      {"/model/vocab/1", json::array({1, 1}), "piece 1 of \"vocab\" must be"},
      {"/model/vocab/1", json::array(), "piece 1 of \"vocab\" must be"},
      {"/model/vocab/1", 7, "piece 1 of \"vocab\" must be"},
      {"/model/vocab/1", json::array({"b", 1}), "duplicate token \"b\""},
      {"/model/vocab/1", json::array({std::string(2000, 'a'), 1}),
       "piece 1 of model Unigram has 2000 bytes"},
      {"/model/unk_id", 6, "unk_id 6 of model Unigram is not in its 6 pieces"},
      {"/model/unk_id", "a", "\"unk_id\" of model Unigram must be the id of a piece"},
      {"/pre_tokenizer", {{"type", "ByteLevel"}}, "model Unigram with pre_tokenizer ByteLevel"},
  }));
  json file = unigram_file();
  file[json::json_pointer(pointer)] = value;
  CAPTURE(pointer, value.dump());
  CHECK_THROWS_WITH(tokenizer(file), Contains(why));
}

TEST_CASE("Precompiled replaces characters and short grapheme clusters", "[unigram]") {
  json file = unigram_file();
  file["normalizer"] = precompiled(table_of(trie_of_a(), std::string("ab\0", 3)));
  const auto unigram = tokenizer(file);
  CHECK(unigram.encode("AbA", false) == tokenizer(unigram_file()).encode("abbab", false));
  // The replacement of a cluster's first character replaces the whole cluster.
  CHECK(unigram.encode("A\u0301", false) == Ids{3});
  CHECK(unigram.encode("A\u0301\u0301\u0301", false) == Ids{3, 0});
}

TEST_CASE("a broken table of replacements is rejected, not read out of bounds", "[unigram]") {
  json file = unigram_file();
  SECTION("when it is loaded") {
    const auto [map, why] = GENERATE(table<std::string, const char*>({
        {"", "is too short"},
        {little_endian_words({400, 0}), "has a trie of a wrong size"},
        {little_endian_words({0}), "has a trie of a wrong size"},
        {table_of(trie_of_a(), "\xFF"), "replacements that are not UTF-8"},
    }));
    file["normalizer"] = precompiled(map);
    CHECK_THROWS_WITH(tokenizer(file), Contains(why));
    file["normalizer"]["precompiled_charsmap"] = "*";
    CHECK_THROWS_WITH(tokenizer(file), Contains("precompiled_charsmap is not base64"));
  }
  SECTION("when it is used") {
    auto units = trie_of_a();
    units[512] = 1u << 31 | 100;
    file["normalizer"] = precompiled(table_of(units, "a"));
    CHECK_THROWS_WITH(tokenizer(file).encode("A", false), Contains("outside of its text"));
    units[0] = 0x3FFFFFu << 10;
    file["normalizer"] = precompiled(table_of(units, "a"));
    CHECK_THROWS_WITH(tokenizer(file).encode("A", false), Contains("leads out of itself"));
  }
}

TEST_CASE("Strip removes white space at the sides that it names", "[unigram]") {
  json file = unigram_file();
  file["model"]["vocab"].push_back(scored(" ", -1));
  const auto [left, right, expected] = GENERATE(table<bool, bool, Ids>({
      {true, true, {1}},
      {true, false, {1, 6}},
      {false, true, {6, 1}},
  }));
  file["normalizer"] = {{"type", "Strip"}, {"strip_left", left}, {"strip_right", right}};
  CHECK(tokenizer(file).encode(" a ", false) == expected);
}

TEST_CASE("a pair without a template is its two texts", "[tokenizer]") {
  const auto plain = tokenizer(unigram_file()).encode_pair("a", "bb", 100);
  CHECK(plain.both.ids == Ids{1, 2, 2});
  CHECK(plain.both.types == Ids{0, 1, 1});
  CHECK_FALSE(plain.cut);
}

TEST_CASE("a template for pairs that repeats a text is rejected", "[tokenizer]") {
  json file = unigram_file();
  const json first = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  file["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", json::array({first})},
                            {"pair", json::array({first, first})},
                            {"special_tokens", json::object()}};
  CHECK_THROWS_WITH(tokenizer(file).encode_pair("a", "b", 9),
                    Contains("Sequence A and Sequence B once each"));
}
