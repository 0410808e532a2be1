// Renders chat templates for the tests: one JSON object a line in, one a line out.
//   {"template": ..., "messages": [..], "tools": .., "add_generation_prompt": .., "extra": {..},
//    "tokens": {"bos": .., ..}, "assistant": true}
// with "name" instead of "template" for a named template
// answers {"text": .., "spans": [[begin, end], ..], "marks": ..}, spans in bytes, or {"error": ..}.
#include <exception>
#include <iostream>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/text/chat_template.hpp"
#include "runtime/text/named_templates.hpp"

using mgpu::text::ChatTemplate;
using Json = nlohmann::ordered_json;

namespace {

const ChatTemplate& parsed(const std::string& source, const Json& tokens) {
  static std::map<std::string, ChatTemplate> known;
  const std::string key = tokens.dump() + source;
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const auto token = [&tokens](const char* name) { return tokens.value(name, std::string()); };
  ChatTemplate chat(source, {token("bos"), token("eos"), token("pad"), token("unk")});
  return known.emplace(key, std::move(chat)).first->second;
}

Json answer(const Json& asked) {
  const auto source = asked.contains("name")
                          ? mgpu::text::named_chat_template(asked.at("name").get<std::string>())
                          : asked.at("template").get<std::string>();
  const auto& chat = parsed(source, asked.value("tokens", Json::object()));
  const Json none, tools = asked.value("tools", none), extra = asked.value("extra", none);
  const auto rendered = asked.value("assistant", false)
                            ? chat.render_with_assistant(asked.at("messages"), tools, extra)
                            : chat.render(asked.at("messages"), tools,
                                          asked.value("add_generation_prompt", false), extra);
  return {
      {"text", rendered.text}, {"spans", rendered.assistant}, {"marks", chat.marks_assistant()}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << answer(Json::parse(line)).dump() << '\n';
    } catch (const std::exception& error) {
      const Json told = {{"error", error.what()}};
      std::cout << told.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
    }
    std::cout.flush();
  }
}
