#include <chrono>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/text/chat_template.hpp"
#include "runtime/text/jinja/eval.hpp"
#include "tests/support/catch.hpp"

using Catch::Matchers::Contains;
using mgpu::text::ChatTemplate;
using Json = nlohmann::ordered_json;

namespace {

const Json kVariables = Json::parse(R"({
  "n": 7, "x": 2.5, "word": "hello", "yes": true, "list": [3, 1, 2],
  "map": {"b": 1, "A": 2, "items": "a key"},
  "people": [{"name": "Ann", "age": 31}, {"name": "bob", "age": 17}]
})");

std::string render(const std::string& source, const Json& variables = kVariables) {
  return ChatTemplate(source, {}).render(Json::array(), {}, false, variables).text;
}

std::string within(const std::string& source, mgpu::text::jinja::Limits limits) {
  return ChatTemplate(source, {}, limits).render(Json::array(), {}, false, kVariables).text;
}

struct Case {
  const char* source;
  const char* expected;
};

}  // namespace

TEST_CASE("expressions evaluate as in Python", "[jinja]") {
  const auto [source, expected] = GENERATE(values<Case>({
      {"{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }}", "5.0 3 -4 2"},
      {"{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2 ** -1 }}", "64 4 0.5"},
      {"{{ 1e16 }} {{ 1e15 }} {{ 0.00001 }} {{ 1.0 }}", "1e+16 1000000000000000.0 1e-05 1.0"},
      {"{{ [1, 'it\\'s', none, true, 2.0, (1,), {'k': 'v'}] }}",
       "[1, \"it's\", None, True, 2.0, (1,), {'k': 'v'}]"},
      {"{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}{{ 1 == 1.0 == true }}", "TrueFalseTrue"},
      {"{{ 1 ~ 2 * 3 }} {{ 'a' * 3 }} {{ [1] + [2] }}", "16 aaa [1, 2]"},
      {"{{ list[1:] }}{{ list[::-1] }}{{ word[-3:] }}{{ word[9] }}", "[1, 2][2, 1, 3]llo"},
      {"{{ 'a' if n > 3 else 'b' }}{{ 'c' if missing }}", "a"},
      {"{{ n is odd and word is string and nothing is not defined }}", "True"},
      {"{{ 'ell' in word }} {{ 4 not in list }} {{ 'b' in map }}", "True True True"},
      {"{{ map.items is string }} {{ map['items'] }}", "False a key"},
      {"{{ 'naïve'|length }} {{ 'Straße'|upper }} {{ 'ΑΣ'|lower }}", "5 STRASSE ας"},
      {"{{ '%05.1f|%-4s|%x' % (x, 'a', 255) }} {{ '{:>4}|{0}'.format(n) if 0 else "
       "'{:>4}'.format(n) }}",
       "002.5|a   |ff    7"},
      {"{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ '4_2'|int }}", "2.0 4.0 2.67 42"},
  }));
  CAPTURE(source);
  CHECK(render(source) == expected);
}

TEST_CASE("tojson keeps the order of keys and formats like Python's json", "[jinja]") {
  const Json given = {{"v", Json::parse(R"({"z": 1, "a": [1.0, null, "ü\n"], "e": {}, "l": []})")}};
  CHECK(render("{{ v|tojson }}", given) ==
        R"({"z": 1, "a": [1.0, null, "ü\n"], "e": {}, "l": []})");
  CHECK(render("{{ v|tojson(indent=2) }}", given) ==
        "{\n  \"z\": 1,\n  \"a\": [\n    1.0,\n    null,\n    \"ü\\n\"\n  ],\n  \"e\": {},\n  "
        "\"l\": []\n}");
  CHECK(render("{{ v.a|tojson(ensure_ascii=true) }}", given) == R"([1.0, null, "\u00fc\n"])");
  CHECK(render("{{ v|tojson(separators=(',', ':'), sort_keys=true) }}", given) ==
        R"({"a":[1.0,null,"ü\n"],"e":{},"l":[],"z":1})");
  CHECK(render("{{ v|tojson }}", {{"v", 18446744073709551615U}}) == "18446744073709551615");
}

TEST_CASE("white space is removed as by Jinja's trim_blocks and lstrip_blocks", "[jinja]") {
  const auto [source, expected] = GENERATE(values<Case>({
      {"  {% if yes %}\n  a\n  {% endif %}\nb", "  a\nb"},
      {"x  {% if yes %}\n y{% endif %}", "x   y"},
      {"  {%+ if yes +%}\n a{% endif %}", "  \n a"},
      {"a\n\n  {%- if yes -%}\n\n b \n\n {%- endif -%}\n\nc", "abc"},
      {"a\n  {# gone #}\nb {#- gone -#} c", "a\nbc"},
      {"{{ n }}\n", "7"},
      {"{{ n }}\n\n", "7\n"},
      {"a\r\n{% if yes %}\r\nb{% endif %}", "a\nb"},
      {"{% raw %}{{ n }}{% if %}{% endraw %}", "{{ n }}{% if %}"},
      {"{{ {'a': {'b': 1}}['a']['b'] }}{{ '}}' }}", "1}}"},
  }));
  CAPTURE(source);
  CHECK(render(source) == expected);
}

TEST_CASE("a loop has its position, and variables set inside stay inside", "[jinja]") {
  CHECK(
      render("{% for i in list %}{{ loop.index }}{{ i }}{{ ',' if not loop.last }}{% endfor %}") ==
      "13,21,32");
  CHECK(render("{% for i in list if i > 1 %}{{ loop.index }}/{{ loop.length }} {% endfor %}") ==
        "1/2 2/2 ");
  CHECK(render("{% for i in [] %}x{% else %}none{% endfor %}") == "none");
  CHECK(render("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 3 %}"
               "{% break %}{% endif %}{{ i }}{% endfor %}") == "023");
  CHECK(render("{% for i in list %}{% set n = n + i %}{{ n }} {% endfor %}{{ n }}") == "10 8 9 7");
  CHECK(
      render("{% set ns = namespace(n=0) %}{% for i in list %}{% set ns.n = ns.n + i %}{% endfor %}"
             "{{ ns.n }}") == "6");
}

TEST_CASE("a macro uses the scope of its definition, not of its call", "[jinja]") {
  CHECK(render("{% macro m(a, b=a) %}{{ a }}{{ b }}{{ i }}{% endmacro %}"
               "{% for i in list %}{{ m(i) }} {% endfor %}") == "33 11 22 ");
  CHECK(render("{% macro m() %}{{ later }}{% endmacro %}{% set later = 5 %}{{ m() }}") == "5");
  CHECK(render("{% set ns = namespace() %}{% for i in list %}{% macro m() %}{{ i }}{% endmacro %}"
               "{% set ns.m = m if loop.first else ns.m %}{% endfor %}{{ ns.m() }}") == "3");
  CHECK(
      render(
          "{% macro m() %}<{{ caller(1) }}>{% endmacro %}{% call(x) m() %}{{ x }}!{% endcall %}") ==
      "<1!>");
}

TEST_CASE("an iterator made by a filter is exhausted by its first use", "[jinja]") {
  CHECK(render("{% set g = people|map(attribute='name') %}{{ g|join(',') }}{{ g|join(',') }}"
               "{{ 'still true' if g }}") == "Ann,bobstill true");
  CHECK_THROWS_WITH(render("{{ people|map(attribute='name') }}"), Contains("has no text"));
}

TEST_CASE("an error names the template's line and the reason", "[jinja]") {
  const auto [source, expected] = GENERATE(values<Case>({
      {"a\n{{ missing.x }}", "chat template line 2: 'missing' is undefined"},
      {"{{ people[0].job.title }}", "chat template line 1: 'dict object' has no attribute 'job'"},
      {"\n\n{{ 'a' + none }}",
       "chat template line 3: can only concatenate str (not \"NoneType\") to str"},
      {"{% if yes %}\n{{ raise_exception('told\nyou') }}{% endif %}",
       "chat template line 2: told\\nyou"},
      {"{{ list.append(1) }}",
       "chat template line 1: access to attribute 'append' of 'list object' is unsafe: values of a "
       "template do not change"},
      {"{{ n.__class__.x }}",
       "chat template line 1: access to attribute '__class__' of 'int object' is unsafe"},
      {"\n{% if yes %}", "chat template line 2: there is no 'endif' for this"},
      {"{{ n", "chat template line 1: a {{ tag is not closed"},
      {"{{ n) }}", "chat template line 1: unexpected ')'"},
      {"{{ 1 2 }}", "chat template line 1: expected '}}', not '2'"},
      {"{{ n|nonsense }}", "chat template line 1: there is no filter 'nonsense'"},
      {"{% include 'x' %}",
       "chat template line 1: the tag 'include' is not supported in chat templates"},
      {"{% for i in list recursive %}{% endfor %}",
       "chat template line 1: recursive loops are not supported; use a macro"},
  }));
  CAPTURE(source);
  CHECK_THROWS_WITH(render(source), expected);
}

TEST_CASE("an unknown filter is not an error if it is not used", "[jinja]") {
  CHECK(
      render("{% if not yes %}{{ n|nonsense }}{% endif %}{{ 1|nonsense if not yes else 'ok' }}") ==
      "ok");
}

TEST_CASE("a hostile template ends with an error", "[jinja]") {
  mgpu::text::jinja::Limits limits{.work = 300'000, .output = 100'000};
  const auto [source, expected] = GENERATE(values<Case>({
      {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "steps"},
      {"{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
       "{% endfor %}",
       "steps"},
      {"{{ 'aaaaaaaaaa' * 1000000000 }}", "steps"},
      {"{{ [0] * 1000000000 }}", "steps"},
      {"{{ '%1000000d' % 1 }}", "more than"},
      {"{{ range(100001) }}", "too long"},
      {"{% for i in range(99) %}{{ 'a' * 9999 }}{% endfor %}", "100000 bytes"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep"},
      {"{% set ns = namespace(v=[]) %}{% for i in range(999) %}{% set ns.v = [ns.v] %}{% endfor %}",
       "deep"},
      {"{% set ns = namespace(v=[1]) %}{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}"
       "{% endfor %}{{ ns.v == ns.v[0] }}{{ ns.v }}",
       "steps"},
      {"{{ 9 ** 9 ** 9 }}", "bits"},
      {"{% set rows = range(10)|slice(60000) %}", "steps"},
  }));
  CAPTURE(source);
  CHECK_THROWS_WITH(within(source, limits), Contains(expected));
}

TEST_CASE("work on a long text counts by its length", "[jinja]") {
  const mgpu::text::jinja::Limits limits{.work = 300'000, .output = 100'000};
  const std::string work =
      GENERATE("s|length", "s|float", "s|int", "s == t", "s < t", "s in {'a': 1}",
               "s.startswith(t)", "s.rfind(u)", "s.rsplit(u)|length");
  CAPTURE(work);
  const std::string source =
      "{% set s = 'a' * 100000 %}{% set t = 'a' * 99999 ~ 'b' %}"
      "{% set u = 'a' * 100 ~ 'b' %}";
  CHECK_NOTHROW(within(source + "{% set x = " + work + " %}", limits));
  CHECK_THROWS_WITH(
      within(source + "{% for i in range(1000) %}{% set x = " + work + " %}{% endfor %}", limits),
      Contains("steps"));
}

TEST_CASE("a search takes time in proportion to the text, not to the text times what is searched",
          "[jinja]") {
  const std::string search = GENERATE("n in h", "h.find(n) == 0", "h.count(n) == 1",
                                      "h.replace(n, '') != h", "h.split(n)|length == 2");
  CAPTURE(search);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(render("{% set h = 'a' * 2000000 %}{% set n = 'a' * 1000000 ~ 'b' %}{{ " + search +
               " }}") == "False");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

TEST_CASE("a template that is nested too deeply for the stack is rejected", "[jinja]") {
  const auto many = [](const std::string& part, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += part;
    return all;
  };
  CHECK_THROWS_WITH(render("{{ " + many("(", 5000) + many(")", 5000) + " }}"), Contains("deep"));
  CHECK_THROWS_WITH(render("{{ " + many("not ", 5000) + "n }}"), Contains("deep"));
  CHECK_THROWS_WITH(render(many("{% if n %}", 5000)), Contains("deep"));
  CHECK_THROWS_WITH(render("{{ 1" + many("+1", 5000) + " }}"), Contains("steps"));
  CHECK_THROWS_WITH(render("{{ n" + many("|abs", 5000) + " }}"), Contains("steps"));
}

TEST_CASE("text that is not UTF-8 passes through unchanged", "[jinja]") {
  CHECK(render("{{ v[1:] }}{{ v|upper }}{{ v|trim }}", {{"v", "a\xff\xc3 b"}}) ==
        "\xff\xc3 bA\xff\xc3 Ba\xff\xc3 b");
}
