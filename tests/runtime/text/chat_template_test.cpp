#include "runtime/text/chat_template.hpp"

#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"

using Catch::Matchers::Contains;
using mgpu::text::ChatTemplate;
using mgpu::text::Rendered;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// A template that shows reasoning in the last turn only, and opens it in the generation prompt.
constexpr const char* kReasoning =
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.role == 'assistant' and loop.last %}<think>{{ m.thought }}</think>{% endif %}"
    "{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{{ '<think>' if open }}{% endif %}";

Json turn(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

const Json kTalk = {turn("system", "Be brief."), turn("user", "Hi"), turn("assistant", "Hello ü"),
                    turn("user", "Bye"), turn("assistant", "So long")};

std::vector<std::string> spoken(const Rendered& rendered) {
  std::vector<std::string> parts;
  for (const auto& [begin, end] : rendered.assistant)
    parts.push_back(rendered.text.substr(begin, end - begin));
  return parts;
}

using Parts = std::vector<std::string>;

}  // namespace

TEST_CASE("a conversation becomes text, with a generation prompt if requested", "[chat]") {
  const ChatTemplate chat(kChatMl, {});
  const Json question = {turn("user", "Hi")};
  CHECK(chat.render(question, {}, false).text == "<|im_start|>user\nHi<|im_end|>\n");
  CHECK(chat.render(question, {}, true).text ==
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("a template receives the tokens, the tools and additional variables", "[chat]") {
  const ChatTemplate chat(
      "{{ bos_token }}|{{ eos_token is defined }}|{{ tools is none }}|{{ documents is none }}|"
      "{{ enable_thinking }}",
      {.bos = "<s>"});
  CHECK(chat.render(Json::array(), {}, false, {{"enable_thinking", false}}).text ==
        "<s>|False|True|True|False");
  CHECK(chat.render(Json::array(), Json::array(), false, {{"bos_token", "<B>"}}).text ==
        "<B>|False|False|True|");
}

TEST_CASE("an invalid conversation is rejected", "[chat]") {
  const ChatTemplate chat(kChatMl, {});
  CHECK_THROWS_WITH(chat.render(Json::object(), {}, false), Contains("must be a JSON array"));
  CHECK_THROWS_WITH(chat.render({1, 2}, {}, false), Contains("chat message 1 must be"));
  CHECK_THROWS_WITH(chat.render(kTalk, "tools", false), Contains("tools must be"));
  CHECK_THROWS_WITH(chat.render(kTalk, {}, false, {{"messages", 1}}),
                    Contains("'messages' cannot be set by"));
  std::string deep(400, '[');
  const Json nested = Json::parse(deep + std::string(400, ']'));
  CHECK_THROWS_WITH(chat.render({{{"role", "user"}, {"content", nested}}}, {}, false),
                    Contains("nested more than"));
}

TEST_CASE("the template's own marks give the assistant's spans, in bytes", "[chat]") {
  const ChatTemplate chat(
      "{% for m in messages %}é{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}.{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
      {});
  CHECK(chat.marks_assistant());
  CHECK(spoken(chat.render(kTalk, {}, false)) == Parts{"Hello ü.", "So long."});
  CHECK(spoken(chat.render_with_assistant(kTalk, {})) == Parts{"Hello ü.", "So long."});
}

TEST_CASE("a mark inside a macro is rejected when spans are requested", "[chat]") {
  const ChatTemplate chat(
      "{% macro m(x) %}head{% generation %}{{ x }}{% endgeneration %}{% endmacro %}{{ m('a') }}",
      {});
  CHECK(chat.render(kTalk, {}, false).text == "heada");
  CHECK(chat.render(kTalk, {}, false).assistant.empty());
  CHECK_THROWS_WITH(chat.render_with_assistant(kTalk, {}), Contains("inside a macro"));
}

TEST_CASE("without marks the spans are found by rendering the turns one by one", "[chat]") {
  const ChatTemplate chat(kChatMl, {});
  CHECK_FALSE(chat.marks_assistant());
  const auto rendered = chat.render_with_assistant(kTalk, {});
  CHECK(rendered.text == chat.render(kTalk, {}, false).text);
  CHECK(spoken(rendered) == Parts{"Hello ü<|im_end|>\n", "So long<|im_end|>\n"});

  SECTION("two assistant messages in a row are two spans") {
    const Json twice = {turn("user", "Hi"), turn("assistant", "a"), turn("assistant", "a")};
    CHECK(spoken(chat.render_with_assistant(twice, {})) == Parts{"a<|im_end|>\n", "a<|im_end|>\n"});
  }
  SECTION("the span of an empty answer is its end-of-turn mark") {
    const Json empty = {turn("user", "Hi"), turn("assistant", ""), turn("user", "")};
    CHECK(spoken(chat.render_with_assistant(empty, {})) == Parts{"<|im_end|>\n"});
  }
}

TEST_CASE("the span of a turn that later loses its reasoning covers what is left", "[chat]") {
  const ChatTemplate chat(kReasoning, {});
  Json talk = kTalk;
  talk[2]["thought"] = "greet";
  talk[4]["thought"] = "part";
  CHECK(spoken(chat.render_with_assistant(talk, {})) ==
        Parts{"Hello ü</>", "<think>part</think>So long</>"});
  CHECK(spoken(chat.render_with_assistant(talk, {}, {{"open", true}})) ==
        Parts{"Hello ü</>", "part</think>So long</>"});
  SECTION("also if the answer looks like the prompt's reasoning") {
    talk[2]["content"] = "<thin";
    CHECK(spoken(chat.render_with_assistant(talk, {}, {{"open", true}}))[0] == "<thin</>");
  }
}

TEST_CASE("spans cannot be determined for a template that rewrites earlier messages", "[chat]") {
  const ChatTemplate counted(
      "{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}", {});
  CHECK_THROWS_WITH(counted.render_with_assistant(kTalk, {}),
                    Contains("assistant message 3") && Contains("{% generation %}"));
  const ChatTemplate shouting(
      "{% for m in messages %}<{{ m.role }}>{{ m.content if loop.last else m.content|upper }}</>"
      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
      {});
  CHECK_THROWS_WITH(shouting.render_with_assistant(kTalk, {}), Contains("assistant message 3"));
}

TEST_CASE("several threads may render one template", "[chat]") {
  const ChatTemplate chat(kChatMl, {});
  const std::string expected = chat.render(kTalk, {}, true).text;
  std::vector<int> same(4, 0);
  std::vector<std::thread> threads;
  for (int& count : same)
    threads.emplace_back([&chat, &expected, &count] {
      for (int i = 0; i < 200; ++i) count += chat.render(kTalk, {}, true).text == expected;
    });
  for (auto& thread : threads) thread.join();
  CHECK(same == std::vector<int>(4, 200));
}
