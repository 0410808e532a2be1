#include "runtime/text/tokenizer.hpp"

#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/text/tokenizer_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::tests;
using Catch::Matchers::Contains;
using mgpu::text::Tokenizer;

TEST_CASE("a byte-level tokenizer encodes and decodes", "[tokenizer]") {
  const Tokenizer t = tokenizer(byte_level_file());
  CHECK(t.encode("abc ab", true) == Ids{257, ' ', 256});
  CHECK(t.encode("e\u0301", true) == Ids{0xC3, 0xA9});
  CHECK(t.encode("", true).empty());
  CHECK(t.decode(t.encode("abé 日\n\U0001F600", false), false) == "abé 日\n\U0001F600");
  CHECK(t.decode(Ids{0xC3, 258, 5000, 'x'}, false) == "\uFFFD<|end|>x");
  CHECK(t.decode(Ids{'a', 258}, true) == "a");
}

TEST_CASE("text that is not UTF-8 is rejected with the position", "[tokenizer]") {
  CHECK_THROWS_WITH(tokenizer(byte_level_file()).encode("abc\xFFz", true),
                    "text is not UTF-8 at byte 3");
}

TEST_CASE("tokens and ids are found both ways", "[tokenizer]") {
  const Tokenizer t = tokenizer(byte_level_file());
  CHECK(t.size() == 259);
  CHECK(t.id_of("<|end|>") == 258);
  CHECK(t.id_of("abc") == 257);
  CHECK_FALSE(t.id_of("nope"));
  CHECK(t.token_of(257) == "abc");
  CHECK(t.token_of(258) == "<|end|>");
  CHECK_THROWS_WITH(t.token_of(259), "id 259 is not a token; the highest id is 258");
  CHECK_THROWS_WITH(t.token_of(-1), Contains("id -1 is not a token"));
  CHECK(t.special(258));
  CHECK_FALSE(t.special(257));
}

TEST_CASE("added tokens are not passed to the model", "[tokenizer]") {
  json file = byte_level_file();
  const auto flags = GENERATE(values<std::pair<json, Ids>>({
      {json::object(), {'x', ' ', 259, ' ', 259, 'y'}},
      {{{"lstrip", true}}, {'x', 259, 259, 'y'}},
      {{{"rstrip", true}}, {'x', ' ', 259, 259, 'y'}},
      {{{"single_word", true}}, {'x', ' ', 259, ' ', 256, 'y'}},
  }));
  CAPTURE(flags.first.dump());
  file["added_tokens"].push_back(added_token(256, "ab", flags.first));
  auto expected = flags.second;
  for (auto& id : expected) id = id == 259 ? 256 : id;
  CHECK(tokenizer(file).encode("x ab aby", false) == expected);
}

TEST_CASE("the longest of the leftmost added tokens is used", "[tokenizer]") {
  json file = byte_level_file();
  for (const char* const content : {"<a", "<a>", "a>b"}) {
    file["added_tokens"].push_back(
        added_token(258 + static_cast<int>(file["added_tokens"].size()), content));
  }
  CHECK(tokenizer(file).encode("<a>b<ax", false) == Ids{260, 'b', 259, 'x'});
}

TEST_CASE("normalized added tokens are searched after normalization", "[tokenizer]") {
  json file = byte_level_file();
  file["added_tokens"].push_back(added_token(259, "e\u0301", {{"normalized", true}}));
  file["added_tokens"].push_back(added_token(260, "u\u0301"));
  const Tokenizer t = tokenizer(file);
  CHECK(t.encode("\u00e9e\u0301", false) == Ids{259, 259});
  CHECK(t.encode("u\u0301", false) == Ids{260});
  CHECK(t.encode("\u00fa", false) == Ids{0xC3, 0xBA});
}

TEST_CASE("the post-processor's template adds special tokens around the text", "[tokenizer]") {
  json file = byte_level_file();
  file["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single",
          {{{"SpecialToken", {{"id", "<|end|>"}, {"type_id", 0}}}},
           {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
           {{"SpecialToken", {{"id", "<|end|>"}, {"type_id", 0}}}}}},
         {"special_tokens", {{"<|end|>", {{"id", "<|end|>"}, {"ids", {258}}}}}}}}}};
  const Tokenizer t = tokenizer(file);
  CHECK(t.encode("ab", true) == Ids{258, 256, 258});
  CHECK(t.encode("ab", false) == Ids{256});
}

TEST_CASE("a Llama-2 tokenizer falls back to bytes and decodes to the same text", "[tokenizer]") {
  json vocab = {{"<unk>", 0}};
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = byte + 1;
  for (const char* const token : {"▁", "h", "i", "▁h", "▁hi"}) vocab[token] = vocab.size();
  const json file = {
      {"added_tokens", {added_token(0, "<unk>", {{"special", true}})}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", "▁"}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", json::array({json::array({"▁", "h"}), json::array({"▁h", "i"})})}}}};
  const Tokenizer t = tokenizer(file);
  CHECK(t.encode("hi hié", false) == Ids{261, 261, 0xC3 + 1, 0xA9 + 1});
  CHECK(t.decode(t.encode("hi  日\n", false), false) == "hi  日\n");
  CHECK(t.decode(Ids{261, 0xC3 + 1}, false) == "hi\uFFFD");
}

TEST_CASE("several threads can encode at once", "[tokenizer]") {
  const Tokenizer t = tokenizer(byte_level_file());
  const std::string text = "ab abc cab é 12 ab\n";
  const Ids expected = t.encode(text, false);
  std::vector<int> same(4);
  {
    std::vector<std::jthread> threads;
    for (int& count : same) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) count += t.encode(text, false) == expected;
      });
    }
  }
  CHECK(same == std::vector<int>(4, 200));
}
