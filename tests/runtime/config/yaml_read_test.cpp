#include <fmt/format.h>

#include "runtime/config/reading/yaml_read.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

namespace {

YamlNode scalar(const std::string& text) {
  return parse_yaml("k: " + text, "f").items.at(1);
}

}  // namespace

TEST_CASE("numbers are accepted in all usual notations", "[yaml]") {
  struct Case {
    const char* text;
    double number;
  };
  auto [text, number] = GENERATE(values<Case>({{"5e-6", 5e-6},
                                               {"1.0e-5", 1e-5},
                                               {"2E-4", 2e-4},
                                               {".01", .01},
                                               {"+3", 3},
                                               {"1_000", 1000},
                                               {"'5e-6'", 5e-6},
                                               {"-1", -1},
                                               {"0.9990", .999}}));
  CAPTURE(text);
  CHECK(to_number(scalar(text)) == number);
}

TEST_CASE("an error about a number quotes the text", "[yaml]") {
  const auto* text = GENERATE("1e", "5e-6x", "nan", ".inf", "1,000", "_1", "1__0", "0x10", "true");
  CAPTURE(text);
  CHECK_THROWS_WITH(to_number(scalar(text)), Contains("need a number, not ") && Contains(text));
}

TEST_CASE("whole numbers may be written as floats without a fraction", "[yaml]") {
  CHECK(to_whole(scalar("5e8")) == 500'000'000);
  CHECK(to_whole(scalar("4.0")) == 4);
  CHECK(to_whole(scalar("-1")) == -1);
  CHECK(to_whole(scalar("9223372036854775807")) == 9223372036854775807LL);
  CHECK_THROWS_WITH(to_whole(scalar("4.5")), Contains("need a whole number, not 4.5"));
  CHECK_THROWS_WITH(to_whole(scalar("1e300")), Contains("need a whole number"));
}

TEST_CASE("flags accept the spellings of YAML, Python and everyday use", "[yaml]") {
  for (const char* yes : {"true", "True", "TRUE", "yes", "on", "1", "'true'"})
    CHECK(to_flag(scalar(yes)));
  for (const char* no : {"false", "False", "no", "off", "0", "\"no\""}) CHECK(!to_flag(scalar(no)));
  CHECK_THROWS_WITH(to_flag(scalar("maybe")), Contains("need true or false, not maybe"));
  CHECK_THROWS_WITH(to_flag(scalar("[true]")), Contains("not a list"));
}

TEST_CASE("null has five spellings, and in quotes it is text", "[yaml]") {
  for (const char* nothing : {"", "~", "null", "NULL", "None"}) CHECK(is_null(scalar(nothing)));
  CHECK(!is_null(scalar("'null'")));
  CHECK(!is_null(scalar("no")));
}

TEST_CASE("a word list may be a list, or a text with commas or spaces", "[yaml]") {
  const std::vector<std::string> expected{"q_proj", "v_proj"};
  CHECK(to_words(scalar("[q_proj, v_proj]")) == expected);
  CHECK(to_words(scalar("q_proj,v_proj")) == expected);
  CHECK(to_words(scalar("q_proj v_proj")) == expected);
  CHECK(to_words(scalar("\n- q_proj\n- v_proj")) == expected);
}

TEST_CASE("flow text reads back as the same value", "[yaml]") {
  const auto* text =
      GENERATE("{a: 1, b: [x, 'y, z', \"null\"], c: {d: ~}}", "[]", "[\"a\\\"b\\n\\t\\x01\"]");
  const auto value = scalar(text);
  const auto again = scalar(flow_text(value));
  CHECK(flow_text(again) == flow_text(value));
  CHECK(again.items.size() == value.items.size());
}

TEST_CASE("flow text of a scalar that looks like YAML reads back as the same text", "[yaml]") {
  const std::string text = GENERATE("'think: then answer'", "'[a-z]*'", "'# no comment'", "'*'",
                                    "'- a'", "'{a: 1}'", "\"two\\nlines\"", "'say \"x\"'", "'a\\d'",
                                    "|\n  two:\n  lines\n", "plain words, and more", "''");
  CAPTURE(text);
  const auto value = scalar(text);
  REQUIRE(value.kind == YamlNode::Kind::scalar);
  const auto again = parse_yaml(flow_text(value), "f");
  REQUIRE(again.kind == YamlNode::Kind::scalar);
  CHECK(again.text == value.text);
  CHECK(flow_text(scalar("'127.0.0.1'")) == "127.0.0.1");
}

TEST_CASE("negative numbers in a list or a map stay numbers in flow text", "[yaml]") {
  const auto* text = "{a: -0.5, b: [-1, 1e-3, -.5], c: '-1'}";
  const auto again = scalar(flow_text(scalar(text)));
  CHECK(!again.items.at(1).quoted);
  CHECK(again.items.at(1).text == "-0.5");
  for (const auto& item : again.items.at(3).items) CHECK(!item.quoted);
  CHECK(again.items.at(5).quoted);
  CHECK(flow_text(scalar("[-, --, a-b]")) == "[\"-\", \"--\", \"a-b\"]");
}

TEST_CASE("every value has its line", "[yaml]") {
  const auto top = parse_yaml("# words\na: 1\n\nb:\n  - x\n  - y\n", "f");
  CHECK(top.items.at(0).line == 2);
  CHECK(top.items.at(2).line == 4);
  CHECK(top.items.at(3).items.at(1).line == 6);
}

TEST_CASE("a repeated key is reported with both lines", "[yaml]") {
  CHECK_THROWS_WITH(parse_yaml("a: 1\nb: 2\na: 3\n", "f"),
                    "f:3: the key a is repeated, first on line 1; keep one");
  CHECK_THROWS_WITH(parse_yaml("m: {x: 1, x: 2}\n", "f"), Contains("f:1: the key x"));
}

TEST_CASE("merge keys add only keys that the map does not have", "[yaml]") {
  const auto top =
      parse_yaml("base: &b {lr: 1, seed: 2}\nrun:\n  <<: *b\n  lr: 3\nagain: *b\n", "f");
  CHECK(flow_text(top.items.at(3)) == "{lr: 3, seed: 2}");
  CHECK(flow_text(top.items.at(5)) == "{lr: 1, seed: 2}");
  const auto two = parse_yaml("a: &a {x: 1}\nb: &b {x: 2, y: 3}\nc: {<<: [*a, *b]}\n", "f");
  CHECK(flow_text(two.items.at(5)) == "{x: 1, y: 3}");
  CHECK_THROWS_WITH(parse_yaml("a: {<<: 3}", "f"), Contains("<<: needs a map"));
  CHECK_THROWS_WITH(parse_yaml("a: &a [*a]", "f"), Contains("inside its own anchor"));
}

TEST_CASE("aliases that expand without limit are refused", "[yaml]") {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += fmt::format("a{}: &a{} [", i, i);
    for (int j = 0; j < 10; ++j) bomb += fmt::format("{}*a{}", j ? ", " : "", i - 1);
    bomb += "]\n";
  }
  CHECK_THROWS_WITH(parse_yaml(bomb, "f"), Contains("too many aliases"));
  std::string deep = "a: &a0 x\n";
  for (int i = 1; i < 40; ++i) deep += fmt::format("a{}: &a{} [*a{}]\n", i, i, i - 1);
  CHECK_THROWS_WITH(parse_yaml(deep, "f"), Contains("nested deeper than 32 levels"));
}

TEST_CASE("nested anchors no longer copy the same values once per level", "[yaml]") {
  std::string list;
  for (int i = 0; i < 30; ++i) list += fmt::format("&a{} [", i);
  for (int i = 0; i < 20'000; ++i) list += "x,";
  CHECK_THROWS_WITH(parse_yaml(list + std::string(30, ']'), "f"), Contains("too many aliases"));
}

TEST_CASE("files that are not recipes are refused with a line", "[yaml]") {
  CHECK_THROWS_WITH(parse_yaml(std::string(100, '['), "f"), Contains("nested deeper"));
  CHECK_THROWS_WITH(parse_yaml(std::string((1 << 20) + 1, 'x'), "f"),
                    Contains("is this a recipe?"));
  CHECK_THROWS_WITH(parse_yaml(std::string("a: 1\nb\0c", 8), "f"), Contains("f:2: contains a NUL"));
  CHECK_THROWS_WITH(parse_yaml("a:\n\tb: 1\n", "f"),
                    Contains("f:2: this line is indented with a tab"));
  CHECK_THROWS_WITH(parse_yaml("a: 1\n---\nb: 2\n", "f"), Contains("f:2: a second document"));
  CHECK_THROWS_WITH(parse_yaml("a: !!python/object:x.Y {}\n", "f"), Contains("python"));
  CHECK_THROWS_WITH(parse_yaml("? [a]\n: 1\n", "f"), Contains("a key must be a word"));
  CHECK_THROWS_WITH(parse_yaml("a: [1\n", "f"), Contains("invalid YAML"));
  CHECK_THROWS_WITH(read_yaml("/nowhere.yaml"),
                    "cannot read /nowhere.yaml: No such file or directory");
  CHECK_THROWS_WITH(read_yaml("/dev/null"), "cannot read /dev/null: not a regular file");
  mgpu::tests::TempDir dir(mgpu::tests::TempDir::in_memory());
  CHECK_THROWS_WITH(read_yaml(dir.root().string()), Contains("cannot read"));
}

TEST_CASE("JSON is accepted, also if it is indented with tabs", "[yaml]") {
  const auto top = parse_yaml("{\n\t\"a\": {\n\t\t\"b\": 5e8\n\t}\n}\n", "f");
  CHECK(to_whole(top.items.at(1).items.at(1)) == 500'000'000);
  CHECK(parse_yaml("{\t\"a\": \"x\ty\"}", "f").items.at(1).text == "x\ty");
}
