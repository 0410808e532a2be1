// The keys of a model that is trained from scratch.

#include <string>

#include "tests/runtime/config/short_recipe.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

TEST_CASE("a model from scratch without a tokenizer gets one from its data", "[recipe]") {
  const std::string lines = "dataset_name: d.jsonl\nmodel_size: tiny\n";
  const auto config = parse_recipe(lines, "f");
  CHECK(config.tokenizer_kind == "bpe");
  CHECK(config.vocab_size == 8192);
  CHECK(parse_recipe(lines + "tokenizer_kind: characters\nvocab_size: 5\n", "f").vocab_size == 5);
  CHECK_THROWS_WITH(parse_recipe(lines + "vocab_size: 258\n", "f"),
                    "f:3: vocab_size: need at least 259 with tokenizer_kind: bpe");
  CHECK_THROWS_WITH(parse_recipe(lines + "tokenizer_kind: characters\nvocab_size: 4\n", "f"),
                    "f:4: vocab_size: need at least 5 with tokenizer_kind: characters");
  CHECK_THROWS_WITH(parse_recipe(lines + "tokenizer_kind: words\n", "f"),
                    Contains("need one of bpe, characters, not words"));
  CHECK_THROWS_WITH(parse_recipe(lines + "tokenizer_path: t\nvocab_size: 512\n", "f"),
                    Contains("vocab_size: requires model_size without tokenizer_path"));
  CHECK_THROWS_WITH(parse_recipe(lines + "reward_funcs: [format]\n", "f"),
                    Contains("model_size: requires tokenizer_path"));
}

TEST_CASE("a model from scratch has a size of its family", "[recipe]") {
  const std::string lines = "dataset_name: d.jsonl\ntokenizer_path: t\n";
  const auto config = parse_recipe(lines + "model_size: 0.6b\nmodel_family: qwen3\n", "f");
  CHECK(config.model_size == "0.6B");
  CHECK(config.model_family == mgpu::model::Family::qwen3);
  CHECK(parse_recipe(lines + "model_size: tiny\n", "f").model_family == mgpu::model::Family::qwen2);
  CHECK_THROWS_WITH(parse_recipe(lines + "model_size: 8B\n", "f"),
                    "f:3: model_size: must be tiny, small, medium or large, not '8B', which is a "
                    "size of model_family: qwen3");
  CHECK_THAT(mistake("model_family: qwen3\n"),
             Contains("model_family: requires model_size: a checkpoint has its own family"));
  CHECK_THROWS_WITH(parse_recipe(lines + "model_size: tiny\nmodel_family: gpt2\n", "f"),
                    Contains("need one of llama, mistral, qwen2, qwen3, not gpt2"));
}
