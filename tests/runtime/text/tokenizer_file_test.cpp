#include <fstream>
#include <iterator>
#include <string>

#include "runtime/text/json_splice.hpp"
#include "tests/runtime/text/tokenizer_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/passing_failure.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::tests;
using Catch::Matchers::Contains;
using mgpu::text::Tokenizer;
using mgpu::text::with_appended;

namespace {

void write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("an unsupported feature of a tokenizer file is rejected by name", "[tokenizer]") {
  struct Case {
    const char* pointer;
    json value;
    const char* why;
  };
  const auto [pointer, value, why] = GENERATE(values<Case>({
      {"/model/type", "WordPiece", "model type WordPiece is not supported"},
      {"/model/dropout", 0.1, "BPE with dropout is not supported"},
      {"/model/end_of_word_suffix", "</w>", "BPE with end_of_word_suffix is not supported"},
      {"/model/vocab", json::array({json::array({"a", 0.5})}), "\"vocab\" of model BPE"},
      {"/model/vocab", {{"a", "b"}}, "the id of token \"a\" must be a number"},
      {"/model/vocab", {{"a", -1}}, "the id of token \"a\" must be a number"},
      {"/model/vocab", {{"a", 1ULL << 63}}, "token \"a\" has id -1"},
      {"/model/merges", {"a b", "ab"}, "merge 1 must be"},
      {"/model/merges", {{"a", "b", "c"}}, "merge 0 must be"},
      {"/model/merges", {{"a", "b"}, {"c"}}, "merge 1 must be"},
      {"/model/merges", {"a z"}, "needs the token \"az\""},
      {"/normalizer", {{"type", "BertNormalizer"}}, "normalizer type BertNormalizer"},
      {"/pre_tokenizer/type", "BertPreTokenizer", "pre_tokenizer type BertPreTokenizer"},
      {"/decoder/type", "WordPiece", "decoder type WordPiece is not supported"},
      {"/post_processor", {{"type", "RobertaProcessing"}}, "post_processor type RobertaProcessing"},
      {"/added_tokens/0/id", 300, "added token \"<|end|>\" has id 300, but Hugging Face's"},
      {"/added_tokens/0/lstrip", 1, "\"lstrip\" must be true or false"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}},
       "cannot use the pattern ("},
  }));
  json file = byte_level_file();
  file[json::json_pointer(pointer)] = value;
  CAPTURE(pointer, value.dump());
  CHECK_THROWS_WITH(tokenizer(file), Contains(why));
}

TEST_CASE("a short tokenizer file can no longer exhaust the memory", "[tokenizer]") {
  const auto replace = [](const char* from, const std::string& to) -> json {
    return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  json file = byte_level_file();
  SECTION("by replacements that double a text thirty times") {
    file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
    for (int i = 0; i < 30; ++i) file["normalizer"]["normalizers"].push_back(replace("a", "aa"));
    CHECK(tokenizer(file).encode("b", false) == Ids{'b'});
    CHECK_THROWS_WITH(tokenizer(file).encode("aaaa", false),
                      "the tokenizer makes a text more than 32 times as long");
    file["added_tokens"].push_back(added_token(259, "<a>", {{"normalized", true}}));
    CHECK_THROWS_WITH(tokenizer(file), Contains("more than 32 times as long"));
  }
  SECTION("by a long replacement of every byte") {
    file["normalizer"] = replace("a", std::string(100'000, 'b'));
    CHECK_THROWS_WITH(tokenizer(file).encode(std::string(100'000, 'a'), false),
                      Contains("more than 32 times as long"));
  }
  SECTION("by replacements of decoded tokens") {
    file["decoder"] = {{"type", "Sequence"}, {"decoders", json::array()}};
    for (int i = 0; i < 30; ++i) file["decoder"]["decoders"].push_back(replace("a", "aa"));
    CHECK_THROWS_WITH(tokenizer(file).decode(Ids{'a', 'a'}, false),
                      Contains("more than 32 times as long"));
  }
  SECTION("by marks that are split off and marked again") {
    json steps = json::array();
    for (int i = 0; i < 30; ++i) {
      steps.push_back({{"type", "Metaspace"},
                       {"replacement", i % 2 == 0 ? "-" : "+"},
                       {"prepend_scheme", "always"},
                       {"split", false}});
      steps.push_back({{"type", "Split"}, {"pattern", {{"Regex", "."}}}, {"behavior", "Isolated"}});
    }
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
    CHECK_THROWS_WITH(tokenizer(file).encode("ab", false), Contains("more than 32 times as long"));
  }
  SECTION("by a template that repeats a token of many ids") {
    const json piece = {{"SpecialToken", {{"id", "x"}, {"type_id", 0}}}};
    json single = json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}});
    for (int i = 0; i < 500; ++i) single.push_back(piece);
    file["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", single},
                              {"special_tokens", {{"x", {{"id", "x"}, {"ids", Ids(1000, 258)}}}}}};
    CHECK_THROWS_WITH(tokenizer(file), Contains("adds more than 1000 tokens"));
  }
  SECTION("by one token with a huge id") {
    file["model"]["vocab"]["far"] = 4'000'000;
    CHECK_THROWS_WITH(tokenizer(file), Contains("ids must be from 0 to 524288"));
  }
  SECTION("by a pattern that is short only before it is translated") {
    std::string pattern;
    for (int i = 0; i < 50'000; ++i) pattern += "\\b";
    file["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
    CHECK_THROWS_WITH(tokenizer(file), Contains("a pattern of this length is not supported"));
  }
  SECTION("by thousands of steps, each with its own pattern or stack frame") {
    json steps = json::array();
    for (int i = 0; i < 5000; ++i) steps.push_back({{"type", "Digits"}});
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
    CHECK_THROWS_WITH(tokenizer(file), Contains("pre_tokenizer has more than 100 steps"));
  }
  SECTION("by a token whose beginning is everywhere in a text") {
    file["added_tokens"].push_back(added_token(259, std::string(10'000, 'a') + "b"));
    CHECK_THROWS_WITH(tokenizer(file), Contains("an added token has 10001 bytes"));
  }
}

TEST_CASE("invalid JSON is rejected with its position", "[tokenizer]") {
  CHECK_THROWS_WITH(Tokenizer::parse("{\"model\": "),
                    Contains("tokenizer.json: invalid JSON at byte"));
  CHECK_THROWS_WITH(Tokenizer::parse("[]"), Contains("must be an object"));
  CHECK_THROWS_WITH(Tokenizer::parse("{}"), Contains("\"model\" must be an object"));
  CHECK_THROWS_WITH(Tokenizer::parse(R"({"model": {}})"),
                    Contains("tokenizer.json: it has no tokens"));
  CHECK_THROWS_WITH(Tokenizer::parse(std::string(100000, '[')), Contains("too deep"));
  CHECK_THROWS_WITH(Tokenizer::parse(byte_level_file().dump(), "[1"),
                    Contains("tokenizer_config.json"));
}

TEST_CASE("the special tokens and the chat template come from the configuration", "[tokenizer]") {
  const Tokenizer t = tokenizer(byte_level_file(), {{"bos_token", nullptr},
                                                    {"eos_token", {{"content", "<|end|>"}}},
                                                    {"pad_token", "<pad>"},
                                                    {"chat_template", "hello"}});
  CHECK(t.bos_token().empty());
  CHECK_FALSE(t.bos_id());
  CHECK(t.eos_token() == "<|end|>");
  CHECK(t.eos_id() == 258);
  CHECK(t.pad_token() == "<pad>");
  CHECK_FALSE(t.pad_id());
  CHECK(t.chat_template() == "hello");

  const json several = {
      {"chat_template",
       {{{"name", "tools"}, {"template", "no"}}, {{"name", "default"}, {"template", "yes"}}}}};
  CHECK(tokenizer(byte_level_file(), several).chat_template() == "yes");
  CHECK(tokenizer(byte_level_file()).chat_template().empty());
}

TEST_CASE("added_tokens_decoder wins if the two files differ", "[tokenizer]") {
  const auto config = [](const char* id, const char* content, bool special) {
    return json{{"added_tokens_decoder", {{id, {{"content", content}, {"special", special}}}}}};
  };
  CHECK_FALSE(tokenizer(byte_level_file(), config("258", "<|end|>", false)).special(258));
  CHECK(tokenizer(byte_level_file(), config("259", "<new>", true)).id_of("<new>") == 259);
  CHECK_THROWS_WITH(tokenizer(byte_level_file(), config("257", "<|end|>", true)),
                    Contains("tokenizer_config.json: added token \"<|end|>\" has id 257"));
}

TEST_CASE("a tokenizer is saved unchanged", "[tokenizer]") {
  const TempDir dir(TempDir::in_memory());
  std::filesystem::create_directories(dir.path("in/additional_chat_templates"));
  const std::map<std::string, std::string> files = {
      {"tokenizer.json", byte_level_file().dump(3) + "\n\n"},
      {"tokenizer_config.json", "{ \"model_max_length\": 1000000000000000019884624838656 }"},
      {"special_tokens_map.json", R"({"eos_token": "<|end|>"})"},
      {"chat_template.jinja", "{{ x }}\n"},
      {"merges.txt", "#version\na b\n"},
      {"additional_chat_templates/rag.jinja", "y"}};
  for (const auto& [name, content] : files) write(dir.path("in/" + name), content);

  Tokenizer t = Tokenizer::load(dir.path("in"));
  CHECK(t.eos_id() == 258);
  CHECK(t.chat_template() == "{{ x }}\n");
  t.save(dir.path("out"));
  for (const auto& [name, content] : files) CHECK(read(dir.path("out/" + name)) == content);

  SECTION("and with added tokens") {
    t.add_tokens({"<new>", "ab", "<|end|>", "<new>"}, false);
    CHECK(t.id_of("<new>") == 259);
    CHECK(t.size() == 260);
    CHECK(t.special(258));
    t.save(dir.path("out"));
    const Tokenizer again = Tokenizer::load(dir.path("out"));
    CHECK(again.size() == 260);
    CHECK(again.encode("xab<new>c<|end|>", false) == Ids{'x', 256, 259, 'c', 258});
    CHECK(read(dir.path("out/tokenizer_config.json")) == files.at("tokenizer_config.json"));
    CHECK(json::parse(read(dir.path("out/tokenizer.json")))["added_tokens"].size() == 3);
  }
}

TEST_CASE("a folder without a tokenizer is reported", "[tokenizer]") {
  const TempDir dir(TempDir::in_memory());
  CHECK_THROWS_WITH(Tokenizer::load(dir.root()),
                    Contains("no tokenizer.json in " + dir.root().string()));
  write(dir.path("tokenizer.json"), "{}");
  CHECK_THROWS_WITH(Tokenizer::load(dir.root()),
                    Contains("cannot use the tokenizer of " + dir.root().string()));
}

TEST_CASE("a folder that does not exist is not taken for a tokenizer of another format",
          "[tokenizer]") {
  const TempDir dir(TempDir::in_memory());
  const auto gone = dir.path("gone");
  CHECK_THROWS_WITH(Tokenizer::load(gone), "there is no folder " + gone + " with a tokenizer");
}

TEST_CASE("an empty token cannot be added", "[tokenizer]") {
  Tokenizer t = tokenizer(byte_level_file());
  CHECK_THROWS_WITH(t.add_tokens({""}, false), "cannot add an empty token");
  CHECK_THROWS_WITH(t.add_tokens({"\xFF"}, false), Contains("not UTF-8 at byte 0"));
  CHECK(t.size() == 259);
}

TEST_CASE("entries are appended to JSON and the rest stays unchanged", "[tokenizer]") {
  struct Case {
    const char *json, *expected;
  };
  const auto [before, expected] = GENERATE(values<Case>({
      {R"({})", R"({"k":[1,2]})"},
      {R"({ "a": 1 })", R"({"k":[1,2], "a": 1 })"},
      {R"({"k":null,"a":1})", R"({"k":[1,2],"a":1})"},
      {R"({"k": []})", R"({"k": [1,2]})"},
      {R"({"\u006b":[]})", R"({"\u006b":[1,2]})"},
      {R"({"a":{"k":[]},"k":[0]})", R"({"a":{"k":[]},"k":[0,1,2]})"},
      {"{\"k\": [\n  \"]\\\"\"\n]}", "{\"k\": [\n  \"]\\\"\",\n  1,\n  2\n]}"},
  }));
  CHECK(with_appended(before, "k", std::vector<std::string>{"1", "2"}) == expected);
  CHECK(with_appended(R"({"k":{"a":1}})", "k", std::vector<std::string>{"\"b\": 2"}) ==
        R"({"k":{"a":1,"b": 2}})");
}

TEST_CASE("a tokenizer that cannot be looked for is not reported as missing", "[tokenizer]") {
  const TempDir dir(TempDir::in_memory());
  make_unreadable(dir.path("loop"));
  CHECK(fails_for_now([&] { Tokenizer::load(dir.path("loop")); }));
  make_unreadable(dir.path("tokenizer.json"));
  CHECK(fails_for_now([&] { Tokenizer::load(dir.root()); }));
}
