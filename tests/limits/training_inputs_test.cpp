#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "runtime/checkpoint/manifest.hpp"
#include "runtime/checkpoint/peft.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/data/blocks.hpp"
#include "runtime/data/row.hpp"
#include "runtime/model/model_shape.hpp"
#include "runtime/model/presets.hpp"
#include "runtime/model/read_config.hpp"
#include "runtime/model/write_config.hpp"
#include "runtime/rewards/accuracy.hpp"
#include "runtime/rewards/external_reward.hpp"
#include "runtime/rewards/item_list.hpp"
#include "runtime/rewards/rules.hpp"
#include "runtime/servers/completions.hpp"
#include "runtime/text/chat_template.hpp"
#include "runtime/text/tokenizer.hpp"
#include "runtime/train/progress.hpp"
#include "tests/limits/amplification.hpp"
#include "tests/support/catch.hpp"

using mgpu::tests::Amplification;
using mgpu::tests::check_amplification;
using mgpu::tests::of_numbers;
using mgpu::tests::of_parts;

namespace {

void parse_training_recipe(const std::string& text) {
  mgpu::train::parse_recipe(text, "f", {.allow_unknown = true});
}

const std::string kConfig =
    R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32,
"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
"max_position_embeddings": 64, "rms_norm_eps": 1e-6)";

void read_and_write_config(const std::string& text) {
  const auto config = mgpu::model::parse_model_config(text, "f");
  mgpu::model::model_config_text(config, text);
}

void parse_ends(const std::string& text) {
  mgpu::model::parse_generation_eos(text, "f");
}

void parse_adapter(const std::string& text) {
  static const auto plan = mgpu::model::tensor_plan(mgpu::model::preset("tiny", 10));
  const auto config = mgpu::checkpoint::parse_lora_config(text, "f");
  mgpu::checkpoint::lora_config_text(config);
  mgpu::checkpoint::adapter_plan(config, plan);
}

void parse_index(const std::string& text) {
  mgpu::checkpoint::parse_weight_index(text, "f");
}

void parse_sealed(const std::string& text) {
  mgpu::checkpoint::parse_manifest(text, "f");
}

void read_and_write_progress(const std::string& text) {
  mgpu::train::progress_text(mgpu::train::parse_progress(text, "f"));
}

void parse_header(const std::string& header) {
  const std::uint64_t length = header.size();
  const std::string file = std::string(reinterpret_cast<const char*>(&length), 8) + header;
  mgpu::checkpoint::read_layout(std::as_bytes(std::span(file.data(), file.size())), "f");
}

void parse_tokenizer(const std::string& text) {
  auto tokenizer = mgpu::text::Tokenizer::parse(text);
  tokenizer.encode("aaaa aaaa", true);
  tokenizer.add_tokens({"<new>"}, true);
}

// The JSON of a tokenizer whose part comes last, open.
std::string tokenizer_with(const std::string& part) {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "aa": 1, "aaaa": 2, " ": 3},
"merges": ["a a", "aa aa"]}, )" +
         part;
}

void encode(const std::string& text) {
  static const auto tokenizer = mgpu::text::Tokenizer::parse(tokenizer_with(
      R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
"added_tokens": [{"id": 4, "content": "aaaaaaaaaaaaaaaab"}]})"));
  tokenizer.decode(tokenizer.encode(text, true), false);
}

void encode_pieces(const std::string& text) {
  static const auto tokenizer = mgpu::text::Tokenizer::parse(
      R"({"normalizer": {"type": "NFKC"}, "model": {"type": "Unigram", "unk_id": 0,
"vocab": [["u", 0], ["aaaaaaaaaaaaaaaa", -2], ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", -1]]}})");
  tokenizer.encode_pair(text, text, 100);
}

void render(const std::string& source) {
  const mgpu::text::ChatTemplate chat(source, {.bos = "<s>", .eos = "</s>"});
  static const auto messages =
      mgpu::text::ChatTemplate::Json::parse(R"([{"role": "user", "content": "x"}])");
  chat.render(messages, nullptr, true, nullptr);
}

void parse_items(const std::string& text) {
  mgpu::rewards::ItemList::parse(text, "items.txt");
}

void parse_item_index(const std::string& text) {
  mgpu::rewards::ItemList::parse(text, "items.json");
}

void read_table(const std::string& text) {
  using namespace mgpu::data;
  RowSyntax syntax{.kind = FileKind::csv};
  read_columns(*open_bytes(text, Compression::none, "f"), "f", syntax);
  TextBlocks blocks(open_bytes(text, Compression::none, "f"), syntax, "f", 0);
  for (Block block; blocks.next(block);)
    for (Rows row(syntax, block.text); row.next();) row.parse();
}

void parse_data_row(const std::string& text) {
  mgpu::data::parse_row(text);
}

void score_answer(const std::string& text) {
  mgpu::rewards::check_answer("\\boxed{" + text + "}", "$1$");
  mgpu::rewards::check_answer(text, "1");
}

void find_json(const std::string& text) {
  mgpu::rewards::json_in(text);
}

void parse_answer(const std::string& text) {
  mgpu::rewards::parse_scores(text, 3);
}

void parse_completion(const std::string& text) {
  mgpu::servers::SamplingParams sampling;
  sampling.vocabulary = 10;
  sampling.max_tokens = 100;
  mgpu::servers::error_message(text);
  const auto answer = nlohmann::json::parse(text, nullptr, false);
  mgpu::servers::parse_completions(answer, {.prompt = {1}, .count = 1}, sampling);
}

}  // namespace

TEST_CASE("recipes cost memory and time in proportion to their bytes", "[limits]") {
  for (const auto& one : {
           of_parts("nested lists", "a: ", "[", "", parse_training_recipe),
           of_parts("nested maps", "a: ", "{a: ", "", parse_training_recipe),
           of_parts("nested block lists", "a:\n ", "- ", "", parse_training_recipe),
           of_numbers("keys", "", "k{}: 1\n", "", parse_training_recipe),
           of_parts("one key", "", "seed: 1\n", "", parse_training_recipe),
           of_parts("list", "a: [", "1,", "]", parse_training_recipe),
           of_numbers("anchors", "a: [", "&a{} x,", "]", parse_training_recipe),
           of_parts("aliases", "a: [&a x,", "*a,", "]", parse_training_recipe),
           of_parts("aliases of a list", "a: [&a [1,2,3,4,5,6,7,8,9],", "*a,", "]",
                    parse_training_recipe),
           of_parts("nested anchors",
                    "a: &a [&b [&c [&d [&e [&f [&g [&h [&i [&j [&k [&l [&m [&n [&o [", "1,",
                    "]]]]]]]]]]]]]]]", parse_training_recipe),
           of_parts("merge keys", "a: &a {b: 1}\nc:\n  <<: [", "*a,", "*a]\n",
                    parse_training_recipe),
           of_parts("long text", "a: ", "x", "\n", parse_training_recipe),
           of_parts("escapes", "a: \"", "\\x41", "\"\n", parse_training_recipe),
           of_parts("comments", "", "# x\n", "seed: 1\n", parse_training_recipe),
       })
    check_amplification(one);
}

TEST_CASE("files of models cost memory and time in proportion to their bytes", "[limits]") {
  for (const auto& one : {
           of_numbers("unknown keys", kConfig, ",\"k{}\":1", "}", read_and_write_config),
           of_parts("a list", kConfig + ",\"k\":[", "1,", "1]}", read_and_write_config),
           of_parts("empty lists", kConfig + ",\"k\":[", "[],", "1]}", read_and_write_config),
           of_parts("a deep list", kConfig + ",\"k\":[[[[[[[[[[[[[[", "1,", "1]]]]]]]]]]]]]]}",
                    read_and_write_config),
           of_parts("nested lists", kConfig + ",\"k\":", "[", "", read_and_write_config),
           of_parts("a long string", kConfig + ",\"k\":\"", "\\u0001", "\"}",
                    read_and_write_config),
           of_parts("tokens that end a text", kConfig + ",\"eos_token_id\":[", "1,", "1]}",
                    read_and_write_config),
           of_parts("layer types", kConfig + ",\"layer_types\":[", "\"full_attention\",", "\"x\"]}",
                    read_and_write_config),
           of_parts("generation", "{\"eos_token_id\":[", "1,", "1]}", parse_ends),
           of_numbers("adapter patterns",
                      R"({"peft_type":"LORA","r":1,"lora_alpha":1,"target_modules":["q_proj"],
"rank_pattern":{)",
                      "\"k{}\":1,", "\"k\":1}}", parse_adapter),
           of_numbers("adapter targets",
                      R"({"peft_type":"LORA","r":1,"lora_alpha":1,"target_modules":[)", "\"k{}\",",
                      "\"q_proj\"]}", parse_adapter),
           of_numbers("weight index", "{\"weight_map\":{", "\"k{}\":\"a\",", "\"k\":\"a\"}}",
                      parse_index),
           of_numbers("manifest",
                      R"({"format":"mgpu-checkpoint","version":1,"manifest_xxh64":"0","files":{)",
                      R"("k{}":{"size":1,"xxh64":""},)", R"("k":{"size":1,"xxh64":""}}})",
                      parse_sealed),
           of_numbers(
               "tensors", "{", "\"k{}\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},",
               "\"k\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", parse_header),
           of_parts("a tensor of many dimensions", "{\"k\":{\"dtype\":\"F32\",\"shape\":[", "1,",
                    "0],\"data_offsets\":[0,0]}}", parse_header),
           of_numbers("metadata", "{\"__metadata__\":{", "\"k{}\":\"\",", "\"k\":\"\"}}",
                      parse_header),
           of_parts("nested header", "", "{\"a\":", "", parse_header),
           of_parts("log history",
                    R"({"global_step":1,"epoch":1,"global_batch":1,"data_seed":1,
"num_input_tokens_seen":1,"updates":1,"evaluations_without_gain":0,"best_metric":null,
"best_global_step":null,"log_history":[)",
                    "{},", "{}]}", read_and_write_progress),
           of_parts("deep log history",
                    R"({"global_step":1,"epoch":1,"global_batch":1,"data_seed":1,
"num_input_tokens_seen":1,"updates":1,"evaluations_without_gain":0,"best_metric":null,
"best_global_step":null,"log_history":[[[[[[[[[[[[[[)",
                    "1,", "1]]]]]]]]]]]]]]}", read_and_write_progress),
       })
    check_amplification(one);
}

TEST_CASE("items cost memory and time in proportion to their bytes", "[limits]") {
  for (const auto& one : {
           of_numbers("items", "", "a{}\tt\t{}\n", "", parse_items),
           of_numbers("items of one name", "", "a\t\t{}\n", "", parse_items),
           of_parts("columns", "", "\t", "\n", parse_items),
           of_numbers("an index", "{", "\"{}\":[\"a\"],", "\"k\":[\"a\"]}", parse_item_index),
           of_parts("parts of a name", "{\"1\":[", "\"a\",", "\"a\"]}", parse_item_index),
           of_parts("nested index", "", "{\"1\":", "", parse_item_index),
       })
    check_amplification(one);
}

TEST_CASE("tokenizers cost memory and time in proportion to their bytes", "[limits]") {
  const std::string replace = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"},)";
  const std::string normalizers =
      tokenizer_with(R"("normalizer": {"type": "Sequence", "normalizers": [)");
  const std::string splits =
      tokenizer_with(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [)");
  const std::string pattern =
      tokenizer_with(R"("pre_tokenizer": {"type": "Split", "behavior": "Isolated",
"pattern": {"Regex": ")");
  const std::string added = tokenizer_with(R"("added_tokens": [)");
  for (const auto& one : {
           of_numbers("tokens", R"({"model": {"type": "BPE", "merges": [], "vocab": {)",
                      "\"k{}\":{},", "\"a\":4000000}}}", parse_tokenizer),
           of_numbers("merges",
                      R"({"model": {"type": "BPE", "vocab": {"a": 0, "aa": 1}, "merges": [)",
                      "\"a a\",", "\"a a\"]}}", parse_tokenizer),
           of_parts("a long merge",
                    R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a",")", "a",
                    "\"]]}}", parse_tokenizer),
           of_numbers("pieces", R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [)",
                      "[\"k{}\",-1],", "[\"a\",-2]]}}", parse_tokenizer),
           of_parts("a table of replacements",
                    tokenizer_with(R"("normalizer": {"type": "Precompiled",
"precompiled_charsmap": "AAAAAA)"),
                    "AAAA", "==\"}}", parse_tokenizer),
           of_parts("text of one piece", "", "a", "", encode_pieces),
           of_parts("text of unknown letters", "", "x", "", encode_pieces),
           of_parts("text of one long grapheme cluster", "e", "\u0301", "", encode_pieces),
           of_parts("replacements", normalizers, replace, "{\"type\":\"NFC\"}]}}", parse_tokenizer),
           of_parts("splits", splits, R"({"type":"Digits"},)", "{\"type\":\"Digits\"}]}}",
                    parse_tokenizer),
           of_parts("nested sequences", splits, R"({"type":"Sequence","pretokenizers":[)", "",
                    parse_tokenizer),
           of_parts("a long pattern", pattern, "a?", "\"}}}", parse_tokenizer),
           of_parts("a pattern of groups", pattern, "(", "\"}}}", parse_tokenizer),
           of_parts("a pattern of boundaries", pattern, "\\\\b", "\"}}}", parse_tokenizer),
           of_parts("a pattern of repeats", pattern, "(a{255}){255}", "\"}}}", parse_tokenizer),
           of_numbers(
               "added tokens", R"({"model":{"type":"BPE","vocab":{},"merges":[]},"added_tokens":[)",
               R"({"id":{},"content":"k{}"},)", R"({"id":0,"content":"k0"}]})", parse_tokenizer),
           of_parts("a long added token", added + R"({"id":4,"content":")", "a", "\"}]}",
                    parse_tokenizer),
           of_parts("ids of a template",
                    tokenizer_with(R"("post_processor": {"type": "TemplateProcessing",
"special_tokens": {"x": {"ids": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}},
"single": [{"Sequence": {"id": "A"}},)"),
                    R"({"SpecialToken":{"id":"x"}},)", R"({"SpecialToken":{"id":"x"}}]}})",
                    parse_tokenizer),
           of_parts("text of one letter", "", "a", "", encode),
           of_parts("text of spaces", "", " ", "x", encode),
           of_parts("text of words", "", "aaa ", "", encode),
           of_parts("text of digits", "", "1", "", encode),
       })
    check_amplification(one);
}

TEST_CASE("chat templates cost a limited amount of memory and time", "[limits]") {
  // The work of a template is limited, not its size: see jinja::Limits.
  constexpr std::size_t kOfTheWork = std::size_t{1} << 30;
  const auto cases = {
      of_parts("text", "", "x", "", render),
      of_parts("prints", "", "{{ 1 }}", "", render),
      of_parts("brackets", "{{ ", "(", "", render),
      of_parts("a sum", "{{ 1", "+1", " }}", render),
      of_parts("negations", "{{ ", "not ", "1 }}", render),
      of_parts("filters", "{{ 'a'", "|upper", " }}", render),
      of_parts("nested conditions", "", "{% if 1 %}", "", render),
      of_parts("nested loops", "", "{% for i in range(99) %}", "", render),
      of_parts("loops that end", "", "{% for i in range(9) %}{% endfor %}", "", render),
      of_parts("assignments", "", "{% set a = [a, a] %}", "", render),
      of_parts("macros", "", "{% macro m() %}{% endmacro %}", "", render),
      of_parts("a list", "{{ [", "1,", "1] }}", render),
      of_parts("comments", "", "{# #}", "", render),
  };
  for (auto one : cases) {
    one.besides = kOfTheWork;
    check_amplification(one);
  }
  if (mgpu::tests::kSanitized) return;  // they would do all the work that is allowed
  for (const char* source :
       {"{{ 'a' * 1000000000 }}", "{{ 'a' * 300000000 }}", "{{ [0] * 9000000 }}",
        "{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}",
        "{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}",
        "{% set n = namespace(v='a') %}{% for i in range(40) %}{% set n.v = n.v ~ n.v %}{% endfor "
        "%}",
        "{% set n = namespace(v=['a']) %}{% for i in range(40) %}{% set n.v = n.v + n.v %}"
        "{% endfor %}{{ n.v }}"}) {
    check_amplification({.name = source,
                         .input = [source](std::size_t) { return std::string(source); },
                         .parse = render,
                         .besides = kOfTheWork});
  }
}

TEST_CASE("rows cost memory and time in proportion to their bytes", "[limits]") {
  for (const auto& one : {
           of_parts("nested row", "{\"a\":", "[", "", parse_data_row),
           of_parts("list", "{\"a\":[", "1,", "1]}", parse_data_row),
           of_parts("lists", "{\"a\":[", "[],", "[]]}", parse_data_row),
           of_parts("objects", "{\"a\":[", "{\"a\":1},", "1]}", parse_data_row),
           of_numbers("keys", "{", "\"k{}\":1,", "\"k\":1}", parse_data_row),
           of_parts("a long number", "{\"a\":1", "0", "}", parse_data_row),
           of_parts("a small number", "{\"a\":0.", "0", "1}", parse_data_row),
           of_parts("escapes", "{\"a\":\"", "\\ud83d\\ude00", "\"}", parse_data_row),
           of_parts("blank lines before a table", "", "\n", "a,b\n1,2\n", read_table),
           of_parts("blank lines in a table", "a,b\n", "\n", "1,2\n", read_table),
           of_parts("a quoted field", "a\n\"", "x\n", "\"\n", read_table),
           of_parts("many columns", "a", ",", "b\n", read_table),
       })
    check_amplification(one);
}

TEST_CASE("completions cost memory and time in proportion to their bytes", "[limits]") {
  for (auto one : {
           of_parts("digits", "", "9", "", score_answer),
           of_parts("a sum", "1", "+1", "", score_answer),
           of_parts("powers", "9", "^9", "", score_answer),
           of_parts("factorials", "9", "!", "", score_answer),
           of_parts("nested fractions", "", "\\frac{1}{", "", score_answer),
           of_parts("nested roots", "", "\\sqrt{", "", score_answer),
           of_parts("parentheses", "", "(", "", score_answer),
           of_parts("braces", "", "{", "", score_answer),
           of_parts("boxes", "", "\\boxed{", "", score_answer),
           of_parts("a set", "\\{1", ",1", "\\}", score_answer),
           of_parts("dollars", "", "$1$ ", "", score_answer),
           of_parts("text", "", "the answer is 1. ", "", score_answer),
           of_parts("final answers", "", "final answer ", "", score_answer),
           of_parts("braces of JSON", "", "{", "}", find_json),
           of_parts("blocks of JSON", "", "```json\n{\n```\n", "", find_json),
       }) {
    one.bytes = 98'000;  // of a completion, the last 200,000 bytes are read
    check_amplification(one);
  }
}

TEST_CASE("answers of servers cost memory and time in proportion to their bytes", "[limits]") {
  for (const auto& one : {
           of_parts("scores", "{\"scores\":[", "1,", "1]}", parse_answer),
           of_parts("lists", "{\"scores\":[", "[],", "1]}", parse_answer),
           of_numbers("keys", "{", "\"k{}\":1,", "\"k\":1}", parse_answer),
           of_parts("nested", "{\"scores\":", "[", "", parse_answer),
           of_parts("an error", "{\"error\":\"", "\\n", "\"}", parse_answer),
           of_parts("an error of lists", "{\"error\":[", "[],", "1]}", parse_answer),
           of_parts("completions", "{\"choices\":[", "{},", "{}]}", parse_completion),
           of_parts("tokens", "{\"choices\":[{\"index\":0,\"token_ids\":[", "1,", "1]}]}",
                    parse_completion),
       })
    check_amplification(one);
}
