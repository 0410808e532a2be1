#include "runtime/rl/prompts.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/runtime/data/toy_encoder.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::rl;
using Catch::Matchers::Contains;

namespace {

struct Reading {
  tests::TempDir dir;
  tests::ToyEncoder encoder;

  Prompt prompt_of(const std::string& row, const PromptOptions& options = {}) const {
    const auto path = dir.path("rows.jsonl");
    std::ofstream(path) << row << "\n";
    return read_prompts({{.path = path}}, options, encoder).all.at(0);
  }
};

}  // namespace

TEST_CASE("a text is used as it is, and a question is the user's message", "[prompts]") {
  const Reading reading;
  const auto text = reading.prompt_of(R"({"prompt": "x="})");
  CHECK(text.text == "x=");
  CHECK(text.messages.empty());
  for (const auto* row : {R"({"problem": "x="})", R"({"question": "x="})"}) {
    const auto question = reading.prompt_of(row);
    CHECK(question.text == "<user>x=<end><assistant>");
    CHECK(question.messages == R"([{"role":"user","content":"x="}])");
  }
}

TEST_CASE("the text in a prompt column that the recipe names is the user's message", "[prompts]") {
  Reading reading;
  const auto* column = GENERATE("ask", "prompt");
  const PromptOptions options{.column = column};
  const auto row = std::string(R"({"problem": "other", ")") + column + R"(": "x="})";
  CHECK(reading.prompt_of(row, options).text == "<user>x=<end><assistant>");

  SECTION("after the system message") {
    const PromptOptions with_system{.column = column, .system_prompt = "s"};
    CHECK(reading.prompt_of(row, with_system).messages ==
          R"([{"role":"system","content":"s"},{"role":"user","content":"x="}])");
  }
  SECTION("or plain text if the model has no chat template") {
    reading.encoder.with_template = false;
    const auto prompt = reading.prompt_of(row, options);
    CHECK(prompt.text == "x=");
    CHECK(prompt.messages.empty());
  }
  SECTION("and no other column replaces it") {
    CHECK_THROWS_WITH(reading.prompt_of(R"({"question": "x="})", options),
                      Contains(":1: the row has no \"" + std::string(column) +
                               "\" column, which dataset_prompt_column names"));
  }
}

TEST_CASE("the item to find is in a column of the row", "[prompts]") {
  const Reading reading;
  CHECK(reading.prompt_of(R"({"prompt": "x=", "completion": "<a_1>\n"})").target == "<a_1>");
  CHECK(reading.prompt_of(R"({"prompt": "x=", "solution": 5, "answer": "\"b\""})").target == "b");
  CHECK(reading.prompt_of(R"({"prompt": "x="})").target.empty());
  CHECK_THROWS_WITH(reading.prompt_of(R"({"prompt": "x="})", {.needs_target = true}),
                    Contains("rows.jsonl:1: the row names no item to find; it needs one of the "
                             "columns solution, target, answer, label, completion"));

  SECTION("and is one of the items that completions may name") {
    std::ofstream(reading.dir.path("items.txt")) << "<a_1>\tt\t0\n";
    const auto items = rewards::ItemList::read(reading.dir.path("items.txt"));
    const PromptOptions options{.items = &items};
    CHECK(reading.prompt_of(R"({"prompt": "x=", "target": " <a_1>\n"})", options).target ==
          "<a_1>");
    CHECK_THROWS_WITH(reading.prompt_of(R"({"prompt": "x=", "target": "<a_2>"})", options),
                      Contains("rows.jsonl:1: the item to find, <a_2>, is not in "));
  }
}

TEST_CASE("the item to find is that of the first column that names one", "[prompts]") {
  const Reading reading;
  const auto row = R"({"prompt": "x=", "solution": " ", "target": 5, "completion": "<a_1>\n"})";
  const auto prompt = reading.prompt_of(row, {.needs_target = true});
  CHECK(prompt.target == "<a_1>");
  CHECK(rewards::target_in(nlohmann::json::parse(prompt.row)) == "<a_1>");
}
