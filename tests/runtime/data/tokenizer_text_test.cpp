#include "runtime/data/tokenizer_text.hpp"

#include <string>

#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;
using Catch::Matchers::Contains;
using mgpu::text::TokenizerKind;

TEST_CASE("the counts of words are the same with any number of threads", "[tokenizer_text]") {
  const TempDir dir(TempDir::in_memory());
  std::string text;
  for (int line = 0; line < 60000; ++line)  // several pieces
    text += "the line " + std::to_string(line % 977) + "\r\n";
  write(dir.path("a.txt"), text);
  const auto alone = read_text({{dir.path("a.txt")}}, TokenizerKind::bpe, {.threads = 1});
  const auto shared = read_text({{dir.path("a.txt")}}, TokenizerKind::bpe, {.threads = 3});
  CHECK(alone.words().sorted() == shared.words().sorted());
}

TEST_CASE("only the columns of the format are read", "[tokenizer_text]") {
  const TempDir dir(TempDir::in_memory());
  write(dir.path("a.jsonl"), R"({"prompt": "ab", "completion": "c", "id": "xyz"})"
                             "\n"
                             R"({"prompt": "ab", "completion": "d", "id": "xyz"})"
                             "\n");
  const auto text = read_text({{dir.path("a.jsonl")}}, TokenizerKind::characters, {});
  std::string characters;
  for (const auto& [character, count] : text.words().sorted()) characters += character;
  CHECK(characters == "abcd");
}

TEST_CASE("a bad row is an error unless bad rows are skipped", "[tokenizer_text]") {
  const TempDir dir(TempDir::in_memory());
  write(dir.path("a.jsonl"), "{\"text\": \"ab\"}\n{\"text\"\n");
  CHECK_THROWS_WITH(read_text({{dir.path("a.jsonl")}}, TokenizerKind::bpe, {}),
                    Contains("a.jsonl:2: "));
  CHECK(read_text({{dir.path("a.jsonl")}}, TokenizerKind::bpe, {.skip_bad_rows = true})
            .words()
            .size() == 1);
}

TEST_CASE("plain text may begin with a bracket", "[tokenizer_text]") {
  const TempDir dir(TempDir::in_memory());
  write(dir.path("a.txt"), "[Chapter 1]\n");
  CHECK(read_text({{dir.path("a.txt")}}, TokenizerKind::bpe, {}).words().size() == 4);
}
