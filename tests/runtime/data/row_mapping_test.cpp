#include "runtime/data/row_mapping.hpp"
#include "runtime/data/row_range.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using Catch::Matchers::Contains;

namespace {

Json mapped(const RowMapping& mapping, const std::string& row) {
  return mapped_row(mapping, parse_row(row));
}

using RowPair = std::pair<std::uint64_t, std::uint64_t>;

RowPair slice(const std::string& split, std::uint64_t rows) {
  return parse_split(split).at(0).range.of(rows);
}

}  // namespace

TEST_CASE("columns, fields of messages and roles get our names", "[mapping]") {
  const RowMapping mapping{
      .columns = {{"messages", "dialog"}, {"system", "sys"}, {"tools", "functions"}},
      .message_fields = {{"role", "from"}, {"content", "value"}, {"reasoning_content", "thought"}},
      .roles = {{"human", "user"}, {"gpt", "assistant"}}};
  CHECK(mapped(mapping, R"({"id":1,"sys":"s","dialog":[{"from":"human","value":"q"},
      {"from":"gpt","value":"a","thought":"t"},{"from":"tool","value":"r"}]})")
            .dump() == R"({"id":1,"messages":[{"content":"q","role":"user"},)"
                       R"({"content":"a","reasoning_content":"t","role":"assistant"},)"
                       R"({"content":"r","role":"tool"}],"system":"s"})");
  CHECK_THROWS_WITH(mapped(mapping, R"({"a":1,"b":2})"),
                    R"(the column "dialog", which is the messages, is missing; the row has a, b)");
}

TEST_CASE("columns can exchange their names", "[mapping]") {
  const RowMapping mapping{.columns = {{"prompt", "completion"}, {"completion", "prompt"}}};
  const auto row = mapped(mapping, R"({"prompt":"1","completion":"2"})");
  CHECK(row["prompt"] == "2");
  CHECK(row["completion"] == "1");
}

TEST_CASE("a function call becomes a tool call of the assistant", "[mapping]") {
  const RowMapping mapping{.message_fields = {{"role", "from"}, {"content", "value"}},
                           .roles = {{"function_call", "function_call"}}};
  const auto row = mapped(mapping, R"({"conversations":[{"from":"function_call",
      "value":"{\"name\":\"f\",\"arguments\":{\"x\":1}}"}]})");
  CHECK(row["conversations"][0].dump() ==
        R"({"content":"","role":"assistant","tool_calls":)"
        R"([{"type":"function","function":{"name":"f","arguments":{"x":1}}}]})");
  CHECK_THROWS_WITH(mapped(mapping, R"({"conversations":[{"from":"function_call","value":"f"
}]
})"),
                    Contains("a function call is invalid"));
}

TEST_CASE("a format makes a prompt of instruction and input", "[mapping]") {
  const RowMapping mapping{.columns = {{"instruction", "q"}, {"output", "a"}},
                           .prompt_format = "[{instruction}|{input}]",
                           .no_input_format = "[{instruction}]",
                           .system_format = "<{system}>"};
  CHECK(mapped(mapping, R"({"q":"{input}","a":"x"})")["prompt"] == "[{input}]");
  const auto row = mapped(mapping, R"({"q":"1","a":"x","input":"2","system":"s"})");
  CHECK(row["prompt"] == "<s>[1|2]");
  CHECK(row["completion"] == "x");
  CHECK_THROWS_WITH(mapped(mapping, R"({"q":"1"})"), Contains("\"a\", which is the output,"));
}

TEST_CASE("slices of splits are those of the library datasets", "[range]") {
  CHECK(slice("train", 10) == RowPair{0, 10});
  CHECK(slice("train[:3]", 10) == RowPair{0, 3});
  CHECK(slice("train[-3:]", 10) == RowPair{7, 10});
  CHECK(slice("train[2:-2]", 10) == RowPair{2, 8});
  CHECK(slice("train[:10%]", 25) == RowPair{0, 2});  // 2.5 is rounded to even
  CHECK(slice("train[10%:20%]", 15) == RowPair{2, 3});
  CHECK(slice("train[50%:]", 7) == RowPair{4, 7});
  CHECK(slice("train[-10%:]", 20) == RowPair{18, 20});
  CHECK_THROWS_WITH(slice("train[:11]", 10), "the split has 10 rows, but its slice needs 11");
  for (const auto* wrong : {"", "[:1]", "train[1]", "train[:x]", "train[:101%]", "train[:1", "a+"})
    CHECK_THROWS_WITH(parse_split(wrong), Contains("cannot parse the split"));
  const auto sum = parse_split("train[:5]+test");
  REQUIRE(sum.size() == 2);
  CHECK(sum[1].name == "test");
  CHECK(sum[0].range.row_limit() == 5);
  CHECK(RowRange{.most = 4}.of(3) == RowPair{0, 3});
  CHECK(RowRange{.from = 2, .most = 4}.row_limit() == 6);
}
