#include "runtime/text/named_templates.hpp"

#include <string>
#include <utility>
#include <vector>

#include "runtime/text/chat_template.hpp"
#include "tests/support/catch.hpp"

using mgpu::text::ChatTemplate;
using mgpu::text::named_chat_template;
using Json = nlohmann::ordered_json;

namespace {

Json said(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

const Json kConversation = {said("system", "Be brief."), said("user", "Hi "),
                            said("assistant", "Hello"), said("user", "Bye"),
                            said("assistant", "So long")};

ChatTemplate chat_of(const std::string& source) {
  return {source, {.bos = "<s>", .eos = "</s>"}};
}

std::string rendered(const std::string& name, const Json& messages, bool prompt = false) {
  return chat_of(named_chat_template(name)).render(messages, {}, prompt).text;
}

}  // namespace

TEST_CASE("a named template writes a conversation as its models expect", "[named]") {
  const std::vector<std::pair<const char*, const char*>> cases{
      {"chatml",
       "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <|im_end|>\n"
       "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
       "<|im_start|>assistant\nSo long<|im_end|>\n"},
      {"llama2",
       "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] Bye [/INST] So "
       "long </s>"},
      {"llama3",
       "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\nSo long<|eot_id|>"},
      {"mistral_v1",
       "<s> [INST] Be brief.\n\nHi  [/INST] Hello</s> [INST] Bye [/INST] So long</s>"},
      {"mistral", "<s>[INST] Hi [/INST] Hello</s>[INST] Be brief.\n\nBye[/INST] So long</s>"},
      {"mistral_v3_tekken", "<s>[INST]Hi [/INST]Hello</s>[INST]Be brief.\n\nBye[/INST]So long</s>"},
      {"mistral_v7_tekken",
       "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hi [/INST]Hello</s>[INST]Bye[/INST]So "
       "long</s>"},
      {"qwen3",
       "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <|im_end|>\n"
       "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
       "<|im_start|>assistant\n<think>\n\n</think>\n\nSo long<|im_end|>\n"},
      {"zephyr",
       "<|system|>\nBe brief.</s>\n<|user|>\nHi </s>\n<|assistant|>\nHello</s>\n<|user|>\nBye</s>\n"
       "<|assistant|>\nSo long</s>\n"},
  };
  for (const auto& [name, text] : cases) {
    CAPTURE(name);
    CHECK(rendered(name, kConversation) == text);
  }
  CHECK(rendered("qwen", Json::array({said("user", "Hi")}), true) ==
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
        "assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  CHECK(rendered("qwen3_nothink", Json::array({said("user", "Hi")}), true) ==
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("the assistant's text is found in every named template", "[named]") {
  for (const auto& name : mgpu::text::chat_template_names()) {
    CAPTURE(name);
    const auto chat = chat_of(named_chat_template(name));
    const auto result = chat.render_with_assistant(kConversation, {});
    REQUIRE(result.assistant.size() == 2);
    const auto part = [&](std::size_t i) {
      const auto [begin, end] = result.assistant[i];
      return result.text.substr(begin, end - begin);
    };
    CHECK(part(0).find("Hello") != std::string::npos);
    CHECK(part(1).find("So long") != std::string::npos);
    CHECK(part(0).find("Hi") == std::string::npos);
    CHECK(part(1).find("Bye") == std::string::npos);
  }
}

TEST_CASE("a default system message is for conversations without one", "[named]") {
  const auto chat =
      chat_of(mgpu::text::with_default_system(named_chat_template("chatml"), "Say \"ä\"\nonly."));
  CHECK(chat.render(Json::array({said("user", "Hi")}), {}, false).text ==
        "<|im_start|>system\nSay \"ä\"\nonly.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
  CHECK(chat.render(Json::array({said("system", "No."), said("user", "Hi")}), {}, false).text ==
        "<|im_start|>system\nNo.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
}

TEST_CASE("an unknown name is no template", "[named]") {
  CHECK(named_chat_template("gemma").empty());
  CHECK(named_chat_template("").empty());
}
