#include "rendezvous/yaml/yaml.hpp"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::rendezvous;
using Kind = YamlNode::Kind;

namespace {

// "line: message" of a text that is not accepted.
std::string problem_of(const std::string& text, const YamlRules& rules = {}) {
  try {
    parse_yaml(text, rules);
  } catch (const YamlError& error) {
    return std::to_string(error.line()) + ": " + error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a document becomes nodes with their lines", "[yaml]") {
  const auto top = parse_yaml("a: 1\nb:\n  - 'x'\n  - {c: ~}\n", {});
  REQUIRE(top.is_map());
  REQUIRE(top.items.size() == 4);
  CHECK(top.items[1].text == "1");
  CHECK_FALSE(top.items[1].quoted);
  const auto& list = top.items[3];
  REQUIRE(list.is_list());
  CHECK(list.items[0].quoted);
  CHECK(list.items[1].line == 4);
  CHECK(list.items[1].items[1].kind == Kind::null);
}

TEST_CASE("aliases are nodes, or are replaced by what they stand for", "[yaml]") {
  const std::string text = "a: &a [x]\nb: *a\n";
  CHECK(parse_yaml(text, {}).items[3].kind == Kind::alias);
  YamlRules rules;
  rules.expands_aliases = true;
  CHECK(parse_yaml(text, rules).items[3].items[0].text == "x");
}

TEST_CASE("of a map with one wanted section only this section is kept", "[yaml]") {
  YamlRules rules;
  rules.only_section = "launch";
  const auto top = parse_yaml("a: [1, [2]]\nempty: []\nlaunch: {n: [3]}\nb: 4\n", rules);
  REQUIRE(top.items.size() == 8);
  CHECK(top.items[1].is_list());
  CHECK(top.items[1].items.size() == 1);  // it is not empty
  CHECK(top.items[1].items[0].kind == Kind::null);
  CHECK(top.items[3].items.empty());
  CHECK(top.items[5].items[1].items[0].text == "3");
  CHECK(top.items[7].text == "4");
}

TEST_CASE("each rule rejects a text with the reader's message and the line", "[yaml]") {
  YamlRules rules;
  rules.most_bytes = 100;
  rules.deepest = 3;
  rules.too_large = "too large";
  rules.too_deep = "too deep";
  rules.second_document = "second";
  rules.quote = "\"";
  CHECK(problem_of(std::string(100, 'x'), rules) == "accepted");
  CHECK(problem_of(std::string(101, 'x'), rules) == "1: too large");
  CHECK(problem_of("[[[]]]", rules) == "accepted");
  CHECK(problem_of("-\n  - \n    - []\n", rules) == "3: too deep");
  CHECK(problem_of("a: 1\n---\nb: 2\n", rules) == "2: second");
  CHECK(problem_of("a: 1\nb: {c: 1,\n  c: 2}\n", rules) ==
        "3: the key \"c\" is repeated, first on line 2; keep one");
  CHECK(problem_of("[a]: 1\n", rules) == "accepted");
  rules.only_word_keys = true;
  CHECK(problem_of("x: 1\n? [a]\n: 1\n", rules) == "2: a key must be a word");
  rules.only_core_tags = true;
  CHECK(problem_of("a: !!int 1\n", rules) == "accepted");
  CHECK(problem_of("a: !x 1\n", rules) == "1: the tag !x is not supported");
  rules.most_nodes = 3;
  rules.too_many = "too many";
  CHECK(problem_of("[1, 2]", rules) == "accepted");
  CHECK(problem_of("[1, 2,\n3, 4]", rules) == "2: too many");
  rules.most_nodes = 100;
  rules.most_text = 4;
  CHECK(problem_of("[ab, cd,\n e]", rules) == "2: too many");
}

TEST_CASE("texts that are no YAML are rejected at their line", "[yaml]") {
  CHECK(problem_of("a:\n\tb: 1\n") == "2: this line is indented with a tab; YAML requires spaces");
  CHECK(problem_of(std::string("a: 1\nb\0", 7)) == "2: contains a NUL byte; is this a text file?");
  CHECK(problem_of("a: [1\n").find("invalid YAML: ") != std::string::npos);
}

TEST_CASE("a complete map can be changed before it is added", "[yaml]") {
  YamlRules rules;
  rules.finish_map = [](YamlNode& map) { map.items[0].text += "!"; };
  const auto top = parse_yaml("a: {b: 1}\n", rules);
  CHECK(top.items[0].text == "a!");
  CHECK(top.items[1].items[0].text == "b!");
}

TEST_CASE("a file is read up to a little more than its limit", "[yaml]") {
  const mgpu::tests::TempDir dir;
  const auto path = dir.path("file.yaml");
  std::ofstream(path) << std::string(100'000, 'x');
  CHECK(read_yaml_text(path, 1 << 20, true).size() == 100'000);
  const auto begun = read_yaml_text(path, 20'000, true).size();
  CHECK(begun > 20'000);
  CHECK(begun < 40'000);
  CHECK(read_yaml_text("/dev/null", 100, false).empty());
  CHECK_THROWS_WITH(read_yaml_text("/dev/null", 100, true),
                    "cannot read /dev/null: not a regular file");
  const auto pipe = dir.path("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(read_yaml_text(pipe, 100, true),
                    "cannot read " + pipe + ": not a regular file");
  CHECK_THROWS_WITH(read_yaml_text(dir.path("missing"), 100, false),
                    "cannot read " + dir.path("missing") + ": No such file or directory");
}
