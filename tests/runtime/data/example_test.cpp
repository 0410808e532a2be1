#include <string>
#include <vector>

#include "runtime/data/batch.hpp"
#include "runtime/data/example.hpp"
#include "tests/runtime/data/toy_encoder.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using Catch::Matchers::Contains;
using mgpu::tests::ToyEncoder;

namespace {

Example read(const std::string& line, RowOptions options = {}, const ToyEncoder& encoder = {}) {
  const Json row = parse_row(line);
  const Format format = format_of(row, options);
  return RowReader(format, options, is_conversational(format, row, encoder), encoder).read(row);
}

std::string all(const Example& example) {
  return ToyEncoder().decode(example.ids);
}

// The tokens with a label.
std::string learned(const Example& example) {
  std::vector<std::int32_t> ids;
  REQUIRE(example.labels.size() == example.ids.size());
  for (std::size_t i = 0; i < example.ids.size(); ++i)
    if (example.labels[i] != kNoTarget) ids.push_back(example.labels[i]);
  return ToyEncoder().decode(ids);
}

}  // namespace

TEST_CASE("the columns of a row tell its format", "[format]") {
  struct Case {
    std::string row;
    Format format;
  };
  const auto [row, format] = GENERATE(values<Case>({
      {R"({"text": ""})", Format::text},
      {R"({"messages": []})", Format::messages},
      {R"({"conversations": [{"from": "human", "value": ""}]})", Format::sharegpt},
      {R"({"conversations": [{"role": "user", "content": ""}]})", Format::messages},
      {R"({"prompt": "", "completion": ""})", Format::prompt_completion},
      {R"({"text": "", "prompt": "", "completion": ""})", Format::prompt_completion},
      {R"({"input_ids": [], "text": ""})", Format::tokens},
      {R"({"instruction": "", "output": ""})", Format::alpaca},
  }));
  CAPTURE(row);
  CHECK(format_of(parse_row(row), {}) == format);
}

TEST_CASE("columns that fit no format are named with the formats there are", "[format]") {
  CHECK_THROWS_WITH(
      format_of(parse_row(R"({"question": 1, "answer": 2})"), {}),
      Contains("question, answer") && Contains("prompt_completion") && Contains("prompt_template"));
  CHECK_THROWS_WITH(format_of(parse_row(R"({"prompt": ""})"), {}), Contains("columns prompt;"));
  CHECK_THROWS_WITH(format_of(parse_row(R"({"text": ""})"), {.format = "jsonn"}),
                    Contains("no dataset format is called jsonn"));
  CHECK(format_of(parse_row(R"({"x": ""})"), {.format = "prompt-completion"}) ==
        Format::prompt_completion);
  CHECK(format_of(parse_row(R"({"x": ""})"), {.text_field = "x"}) == Format::text);
  CHECK(format_of(parse_row(R"({"x": ""})"), {.prompt_template = "{x}"}) == Format::columns);
}

TEST_CASE("a text ends with one eos and is learned whole", "[example]") {
  CHECK(learned(read(R"({"text": "hello"})")) == "hello<eos>");
  CHECK(learned(read(R"({"text": "hello<eos>"})")) == "hello<eos>");
  CHECK(learned(read(R"({"text": ""})")) == "<eos>");
  ToyEncoder bos;
  bos.bos = true;
  CHECK(learned(read(R"({"text": "x"})", {}, bos)) == "<bos>x<eos>");
  ToyEncoder no_eos;
  no_eos.with_eos = false;
  CHECK(learned(read(R"({"text": "x"})", {}, no_eos)) == "x");
}

TEST_CASE("of a prompt and completion, the completion is learned", "[example]") {
  const std::string row = R"({"prompt": "1+1=", "completion": "2"})";
  CHECK(all(read(row)) == "1+1=2<eos>");
  CHECK(learned(read(row)) == "2<eos>");
  CHECK(learned(read(row, {.completion_only_loss = true})) == "2<eos>");
  CHECK(learned(read(row, {.completion_only_loss = false})) == "1+1=2<eos>");
  CHECK_FALSE(read(row).lost_prompt);
  CHECK(learned(read(R"({"prompt": "p", "completion": "c<eos>"})")) == "c<eos>");
}

TEST_CASE("the completion starts where the ids part", "[example]") {
  const Example example = read(R"({"prompt": "xa", "completion": "b"})");
  CHECK(example.ids == std::vector<std::int32_t>{'x', ToyEncoder::kAb, ToyEncoder::kEos});
  CHECK(learned(example) == "ab<eos>");
  REQUIRE(example.lost_prompt);
  CHECK(*example.lost_prompt == "a");
}

TEST_CASE("a conversation is learned whole, or what the assistant says", "[example]") {
  const std::string row = R"({"messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "?"},
      {"role": "assistant", "content": "!"}]})";
  CHECK(learned(read(row)) == "<user>Hi<end><assistant>Ho<end><user>?<end><assistant>!<end>");
  CHECK(learned(read(row, {.assistant_only_loss = true})) == "Ho<end>!<end>");
  CHECK_THROWS_WITH(
      read(R"({"messages": [{"role": "user", "content": "Hi"}]})", {.assistant_only_loss = true}),
      Contains("marks no token of the assistant's"));
}

TEST_CASE("a conversational prompt and completion meet in the generation prompt", "[example]") {
  const std::string row = R"({
      "prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                 {"role": "user", "content": "c"}],
      "completion": [{"role": "assistant", "content": "d"}, {"role": "tool", "content": "e"},
                     {"role": "assistant", "content": "f"}]})";
  CHECK(learned(read(row)) == "d<end><tool>e<end><assistant>f<end>");
  SECTION("both masks apply where both are asked for") {
    CHECK(learned(read(row, {.assistant_only_loss = true})) == "d<end>f<end>");
  }
  SECTION("without completion_only_loss the assistant's turns of the prompt are learned too") {
    CHECK(learned(read(row, {.completion_only_loss = false, .assistant_only_loss = true})) ==
          "b<end>d<end>f<end>");
  }
}

TEST_CASE("tools and template arguments of a row reach the template", "[example]") {
  const std::string chat = R"("messages": [{"role": "user", "content": ""}])";
  const std::string tools = R"([{"name":"f"}])";
  CHECK(all(read("{" + chat + R"(, "tools": [{"name": "f"}]})")) ==
        "<tools " + tools + "><user><end>");
  CHECK(all(read("{" + chat + R"(, "tools": "[{\"name\": \"f\"}]"})")) ==
        "<tools " + tools + "><user><end>");
  CHECK(all(read("{" + chat + R"(, "tools": null, "chat_template_kwargs": null})")) ==
        "<user><end>");
  CHECK(all(read("{" + chat + R"(, "chat_template_kwargs": {"enable_thinking": false}})")) ==
        "<extra {\"enable_thinking\":false}><user><end>");
  CHECK_THROWS_WITH(read("{" + chat + R"(, "tools": "[1"})"), Contains("\"tools\": no JSON"));
  CHECK_THROWS_WITH(read("{" + chat + R"(, "tools": "[],\"x\":1"})"), Contains("is no list"));
  CHECK_THROWS_WITH(read("{" + chat + R"(, "tools": 1})"), Contains("neither a list nor"));
  CHECK_THROWS_WITH(read("{" + chat + R"(, "chat_template_kwargs": []})"), Contains("no object"));
}

TEST_CASE("ShareGPT's rows are conversations with other names", "[example]") {
  const std::string row = R"({"conversations": [{"from": "human", "value": "q"},
      {"from": "gpt", "value": "a"}], "system": "s"})";
  CHECK(all(read(row)) == "<system>s<end><user>q<end><assistant>a<end>");
  CHECK(learned(read(row, {.assistant_only_loss = true})) == "a<end>");
  CHECK(all(read(row, {.map_sharegpt_roles = false})) == "<system>s<end><human>q<end><gpt>a<end>");
  CHECK_THROWS_WITH(read(R"({"conversations": [{"from": "human", "role": "user", "value": ""}]})"),
                    Contains("both \"from\" and \"role\""));
}

TEST_CASE("Alpaca's rows are conversations where there is a template", "[example]") {
  const std::string row = R"({"instruction": "Add.", "input": "1 2", "output": "3",
      "system": "s", "history": [["q", "a"]]})";
  const Example chat = read(row);
  CHECK(all(chat) ==
        "<system>s<end><user>q<end><assistant>a<end><user>Add.\n1 2<end><assistant>3<end>");
  CHECK(learned(chat) == "3<end>");
  SECTION("and Stanford's text where there is none") {
    ToyEncoder plain;
    plain.with_template = false;
    CHECK(all(read(row, {}, plain)) ==
          "s\n\n### Instruction:\nq\n\n### Response:\na\n\n### Instruction:\nAdd.\n\n"
          "### Input:\n1 2\n\n### Response:\n3<eos>");
    CHECK(learned(read(row, {}, plain)) == "3<eos>");
    CHECK_THAT(all(read(R"({"instruction": "i", "output": "o"})", {}, plain)),
               Catch::Matchers::StartsWith("Below is an instruction that describes a task. Write"));
  }
  CHECK_THROWS_WITH(read(R"({"instruction": "i", "output": "o", "history": [["q"]]})"),
                    Contains("no list of [question, answer]"));
}

TEST_CASE("pre-tokenised rows are taken as they are", "[example]") {
  const Example plain = read(R"({"input_ids": [5, 6, 7]})");
  CHECK(plain.ids == std::vector<std::int32_t>{5, 6, 7});
  CHECK(plain.labels == plain.ids);
  const Example labelled = read(R"({"input_ids": [5, 6, 7], "labels": [-100, 6, 9]})");
  CHECK(labelled.labels == std::vector<std::int32_t>{kNoTarget, 6, 9});
  const Example masked = read(
      R"({"input_ids": [5, 6, 7], "completion_mask": [0, 1, 1], "assistant_masks": [1, 1, 0]})");
  CHECK(masked.labels == std::vector<std::int32_t>{kNoTarget, 6, kNoTarget});

  CHECK_THROWS_WITH(read(R"({"input_ids": [5], "labels": [5, 6]})"), Contains("2 entries where"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [-1]})"), Contains("holds -1"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [1.0]})"), Contains("no integer"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [10]})", {.vocabulary = 10}), Contains("from 0 to 9"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [18446744073709551615]})"), Contains("holds 184467"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [1], "labels": [-1]})"), Contains("\"labels\" holds -1"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [1], "completion_mask": [2]})"), Contains("0 and 1"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [1]})", {.assistant_only_loss = true}),
                    Contains("needs labels or assistant_masks"));
}

TEST_CASE("a prompt_template puts columns into a text", "[example]") {
  RowOptions options{.prompt_template = "Q: {q} {{{n}}} A: {a}"};
  CHECK(learned(read(R"({"q": "why", "n": 1.5, "a": ["x"]})", options)) ==
        "Q: why {1.5} A: [\"x\"]<eos>");
  CHECK_THROWS_WITH(read(R"({"q": "why", "n": 1})", options),
                    Contains("\"a\"") && Contains("missing"));
  CHECK_THROWS_WITH(read(R"({"q": "why", "n": 1, "a": null})", options), Contains("is null"));
  SECTION("a completion that it does not name is what is learned") {
    CHECK(learned(read(R"({"q": "why", "completion": "so"})", {.prompt_template = "{q}? "})) ==
          "so<eos>");
  }
  SECTION("its braces have to match") {
    const auto bad = GENERATE(as<std::string>(), "{", "}", "a{b", "{}", "{a{b}}", "a}b");
    CAPTURE(bad);
    CHECK_THROWS_WITH(ColumnTemplate(bad), Contains("is no {column}"));
  }
}

TEST_CASE("a row that lacks what its format needs is refused", "[example]") {
  struct Case {
    std::string format, row, what;
  };
  const auto [format, row, what] = GENERATE(values<Case>({
      {"text", R"({"text": 5})", "\"text\" is number, no string"},
      {"text", R"({"text": null})", "\"text\" is null"},
      {"text", R"({"x": ""})", "\"text\" is missing"},
      {"messages", R"({"messages": []})", "no list of messages"},
      {"messages", R"({"messages": [{"content": "x"}]})", "message 1 of \"messages\" has no role"},
      {"messages", R"({"messages": ["x"]})", "has no role"},
      {"prompt_completion", R"({"prompt": "x", "completion": []})", "\"completion\" is array"},
      {"prompt_completion", R"({"prompt": [{"role": "user"}], "completion": "x"})", "no list of"},
      {"alpaca", R"({"instruction": "x"})", "\"output\" is missing"},
      {"tokens", R"({"input_ids": "x"})", "no list"},
  }));
  CAPTURE(row);
  CHECK_THROWS_WITH(read(row, {.format = format}), Contains(what));
}

TEST_CASE("options that a format cannot meet are refused at once", "[example]") {
  const ToyEncoder encoder;
  CHECK_THROWS_WITH(RowReader(Format::text, {.assistant_only_loss = true}, false, encoder),
                    Contains("assistant_only_loss is for conversations"));
  ToyEncoder plain;
  plain.with_template = false;
  CHECK_THROWS_WITH(RowReader(Format::messages, {}, true, plain), Contains("no chat template"));
  CHECK_THROWS_WITH(RowReader(Format::columns, {}, false, encoder), Contains("prompt_template"));
  CHECK_THAT(RowReader(Format::text, {.completion_only_loss = true}, false, encoder).notes().at(0),
             Contains("completion_only_loss has nothing to act on"));
}
