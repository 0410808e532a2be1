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

// The text of the tokens that have a label.
std::string target_text(const Example& example) {
  std::vector<std::int32_t> ids;
  REQUIRE(example.labels.size() == example.ids.size());
  for (std::size_t i = 0; i < example.ids.size(); ++i)
    if (example.labels[i] != kNoTarget) ids.push_back(example.labels[i]);
  return ToyEncoder().decode(ids);
}

}  // namespace

TEST_CASE("the columns of a row determine its format", "[format]") {
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

TEST_CASE("an error for unknown columns lists the columns and the formats", "[format]") {
  CHECK_THROWS_WITH(
      format_of(parse_row(R"({"question": 1, "answer": 2})"), {}),
      Contains("question, answer") && Contains("prompt_completion") && Contains("prompt_template"));
  CHECK_THROWS_WITH(format_of(parse_row(R"({"prompt": ""})"), {}), Contains("columns prompt;"));
  CHECK_THROWS_WITH(format_of(parse_row(R"({"text": ""})"), {.format = "jsonn"}),
                    Contains("unknown dataset format jsonn"));
  CHECK(format_of(parse_row(R"({"x": ""})"), {.format = "prompt-completion"}) ==
        Format::prompt_completion);
  CHECK(format_of(parse_row(R"({"x": ""})"), {.text_field = "x"}) == Format::text);
  CHECK(format_of(parse_row(R"({"x": ""})"), {.prompt_template = "{x}"}) == Format::columns);
}

TEST_CASE("a text ends with one eos and all of it is trained on", "[example]") {
  CHECK(target_text(read(R"({"text": "hello"})")) == "hello<eos>");
  CHECK(target_text(read(R"({"text": "hello<eos>"})")) == "hello<eos>");
  CHECK(target_text(read(R"({"text": ""})")) == "<eos>");
  ToyEncoder bos;
  bos.bos = true;
  CHECK(target_text(read(R"({"text": "x"})", {}, bos)) == "<bos>x<eos>");
  ToyEncoder no_eos;
  no_eos.with_eos = false;
  CHECK(target_text(read(R"({"text": "x"})", {}, no_eos)) == "x");
}

TEST_CASE("of a prompt and completion, only the completion is trained on", "[example]") {
  const std::string row = R"({"prompt": "1+1=", "completion": "2"})";
  CHECK(all(read(row)) == "1+1=2<eos>");
  CHECK(target_text(read(row)) == "2<eos>");
  CHECK(target_text(read(row, {.completion_only_loss = true})) == "2<eos>");
  CHECK(target_text(read(row, {.completion_only_loss = false})) == "1+1=2<eos>");
  CHECK_FALSE(read(row).lost_prompt);
  CHECK(target_text(read(R"({"prompt": "p", "completion": "c<eos>"})")) == "c<eos>");
}

TEST_CASE("the completion starts where the ids differ from those of the prompt", "[example]") {
  const Example example = read(R"({"prompt": "xa", "completion": "b"})");
  CHECK(example.ids == std::vector<std::int32_t>{'x', ToyEncoder::kAb, ToyEncoder::kEos});
  CHECK(target_text(example) == "ab<eos>");
  REQUIRE(example.lost_prompt);
  CHECK(*example.lost_prompt == "a");
}

TEST_CASE("a conversation is trained on whole, or only the assistant's messages", "[example]") {
  const std::string row = R"({"messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "?"},
      {"role": "assistant", "content": "!"}]})";
  CHECK(target_text(read(row)) == "<user>Hi<end><assistant>Ho<end><user>?<end><assistant>!<end>");
  CHECK(target_text(read(row, {.assistant_only_loss = true})) == "Ho<end>!<end>");
  CHECK_THROWS_WITH(
      read(R"({"messages": [{"role": "user", "content": "Hi"}]})", {.assistant_only_loss = true}),
      Contains("marks no assistant token"));
}

TEST_CASE("a conversational completion begins after the generation prompt", "[example]") {
  const std::string row = R"({
      "prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                 {"role": "user", "content": "c"}],
      "completion": [{"role": "assistant", "content": "d"}, {"role": "tool", "content": "e"},
                     {"role": "assistant", "content": "f"}]})";
  CHECK(target_text(read(row)) == "d<end><tool>e<end><assistant>f<end>");
  SECTION("both masks apply if both are set") {
    CHECK(target_text(read(row, {.assistant_only_loss = true})) == "d<end>f<end>");
  }
  SECTION("without completion_only_loss the assistant's turns in the prompt are trained on too") {
    CHECK(target_text(read(row, {.completion_only_loss = false, .assistant_only_loss = true})) ==
          "b<end>d<end>f<end>");
  }
}

TEST_CASE("tools and template arguments of a row are passed to the template", "[example]") {
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
  CHECK_THROWS_WITH(read("{" + chat + R"(, "tools": "[1"})"),
                    Contains("\"tools\" is invalid: invalid JSON"));
  CHECK_THROWS_WITH(read("{" + chat + R"(, "tools": "[],\"x\":1"})"),
                    Contains("must contain a list"));
  CHECK_THROWS_WITH(read("{" + chat + R"(, "tools": 1})"), Contains("must be a list or a string"));
  CHECK_THROWS_WITH(read("{" + chat + R"(, "chat_template_kwargs": []})"),
                    Contains("must be an object"));
}

TEST_CASE("a message with a part that is no text is bad", "[example]") {
  const auto row = [](const std::string& part) {
    return R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, )" + part +
           "]}]}";
  };
  CHECK_NOTHROW(read(row(R"({"type": "text", "text": "b"})")));
  CHECK_NOTHROW(read(row(R"({"text": "b"})")));
  CHECK_THROWS_WITH(read(row(R"({"type": "image_url", "image_url": {"url": "x"}})")),
                    Contains("message 1 of \"messages\" has a part of type \"image_url\"; images "
                             "are not supported"));
  CHECK_THROWS_WITH(read(row(R"({"image": "x.png"})")), Contains("images are not supported"));
  CHECK_THROWS_WITH(read(row(R"({"type": "input_audio", "input_audio": {}})")),
                    Contains("\"input_audio\"; only parts of type text are supported"));
}

TEST_CASE("ShareGPT rows are conversations with other key names", "[example]") {
  const std::string row = R"({"conversations": [{"from": "human", "value": "q"},
      {"from": "gpt", "value": "a"}], "system": "s"})";
  CHECK(all(read(row)) == "<system>s<end><user>q<end><assistant>a<end>");
  CHECK(target_text(read(row, {.assistant_only_loss = true})) == "a<end>");
  CHECK(all(read(row, {.map_sharegpt_roles = false})) == "<system>s<end><human>q<end><gpt>a<end>");
  CHECK_THROWS_WITH(read(R"({"conversations": [{"from": "human", "role": "user", "value": ""}]})"),
                    Contains("both \"from\" and \"role\""));
}

TEST_CASE("Alpaca rows are conversations if there is a chat template", "[example]") {
  const std::string row = R"({"instruction": "Add.", "input": "1 2", "output": "3",
      "system": "s", "history": [["q", "a"]]})";
  const Example chat = read(row);
  CHECK(all(chat) ==
        "<system>s<end><user>q<end><assistant>a<end><user>Add.\n1 2<end><assistant>3<end>");
  CHECK(target_text(chat) == "3<end>");
  SECTION("and Stanford's text if there is none") {
    ToyEncoder plain;
    plain.with_template = false;
    CHECK(all(read(row, {}, plain)) ==
          "s\n\n### Instruction:\nq\n\n### Response:\na\n\n### Instruction:\nAdd.\n\n"
          "### Input:\n1 2\n\n### Response:\n3<eos>");
    CHECK(target_text(read(row, {}, plain)) == "3<eos>");
    CHECK_THAT(all(read(R"({"instruction": "i", "output": "o"})", {}, plain)),
               Catch::Matchers::StartsWith("Below is an instruction that describes a task. Write"));
  }
  CHECK_THROWS_WITH(read(R"({"instruction": "i", "output": "o", "history": [["q"]]})"),
                    Contains("must be a list of [question, answer] pairs"));
}

TEST_CASE("pre-tokenized rows are used unchanged", "[example]") {
  const Example plain = read(R"({"input_ids": [5, 6, 7]})");
  CHECK(plain.ids == std::vector<std::int32_t>{5, 6, 7});
  CHECK(plain.labels == plain.ids);
  const Example labelled = read(R"({"input_ids": [5, 6, 7], "labels": [-100, 6, 9]})");
  CHECK(labelled.labels == std::vector<std::int32_t>{kNoTarget, 6, 9});
  const Example masked = read(
      R"({"input_ids": [5, 6, 7], "completion_mask": [0, 1, 1], "assistant_masks": [1, 1, 0]})");
  CHECK(masked.labels == std::vector<std::int32_t>{kNoTarget, 6, kNoTarget});

  CHECK_THROWS_WITH(read(R"({"input_ids": [5], "labels": [5, 6]})"),
                    Contains("has 2 entries, but"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [-1]})"), Contains("contains -1"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [1.0]})"), Contains("only integers"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [10]})", {.vocabulary = 10}), Contains("from 0 to 9"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [18446744073709551615]})"), Contains("contains 184467"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [1], "labels": [-1]})"),
                    Contains("\"labels\" contains -1"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [1], "completion_mask": [2]})"), Contains("0 and 1"));
  CHECK_THROWS_WITH(read(R"({"input_ids": [1]})", {.assistant_only_loss = true}),
                    Contains("requires labels or assistant_masks"));
}

TEST_CASE("a prompt_template inserts columns into a text", "[example]") {
  RowOptions options{.prompt_template = "Q: {q} {{{n}}} A: {a}"};
  CHECK(target_text(read(R"({"q": "why", "n": 1.5, "a": ["x"]})", options)) ==
        "Q: why {1.5} A: [\"x\"]<eos>");
  CHECK_THROWS_WITH(read(R"({"q": "why", "n": 1})", options),
                    Contains("\"a\"") && Contains("missing"));
  CHECK_THROWS_WITH(read(R"({"q": "why", "n": 1, "a": null})", options), Contains("is null"));
  SECTION("only a completion column that it does not name is trained on") {
    CHECK(target_text(read(R"({"q": "why", "completion": "so"})", {.prompt_template = "{q}? "})) ==
          "so<eos>");
  }
  SECTION("its braces must match") {
    const auto bad = GENERATE(as<std::string>(), "{", "}", "a{b", "{}", "{a{b}}", "a}b");
    CAPTURE(bad);
    CHECK_THROWS_WITH(ColumnTemplate(bad), Contains("is not part of a {column}"));
  }
}

TEST_CASE("a row that does not fit its format is rejected", "[example]") {
  struct Case {
    std::string format, row, what;
  };
  const auto [format, row, what] = GENERATE(values<Case>({
      {"text", R"({"text": 5})", "\"text\" must be a string, not number"},
      {"text", R"({"text": null})", "\"text\" must be a string, not null"},
      {"text", R"({"x": ""})", "\"text\" is missing"},
      {"messages", R"({"messages": []})", "must be a non-empty list of messages"},
      {"messages", R"({"messages": [{"content": "x"}]})", "message 1 of \"messages\" has no role"},
      {"messages", R"({"messages": ["x"]})", "has no role"},
      {"prompt_completion", R"({"prompt": "x", "completion": []})",
       "\"completion\" must be a string, not array"},
      {"prompt_completion", R"({"prompt": [{"role": "user"}], "completion": "x"})",
       "must be a non-empty list of"},
      {"alpaca", R"({"instruction": "x"})", "\"output\" is missing"},
      {"tokens", R"({"input_ids": "x"})", "is not a list"},
  }));
  CAPTURE(row);
  CHECK_THROWS_WITH(read(row, {.format = format}), Contains(what));
}

TEST_CASE("options that do not fit the format are rejected at once", "[example]") {
  const ToyEncoder encoder;
  CHECK_THROWS_WITH(RowReader(Format::text, {.assistant_only_loss = true}, false, encoder),
                    Contains("assistant_only_loss requires conversations"));
  ToyEncoder plain;
  plain.with_template = false;
  CHECK_THROWS_WITH(RowReader(Format::messages, {}, true, plain), Contains("no chat template"));
  CHECK_THROWS_WITH(RowReader(Format::columns, {}, false, encoder), Contains("prompt_template"));
  CHECK_THAT(RowReader(Format::text, {.completion_only_loss = true}, false, encoder).notes().at(0),
             Contains("completion_only_loss has no effect"));
}
