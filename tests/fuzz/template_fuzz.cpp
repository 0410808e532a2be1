#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "runtime/text/chat_template.hpp"
#include "runtime/text/jinja/eval.hpp"

using mgpu::text::ChatTemplate;
using Json = nlohmann::ordered_json;

namespace {

const Json kMessages = Json::parse(R"([
  {"role": "system", "content": "Be brief.\n"},
  {"role": "user", "content": "Ümlaut <b> & \"quotes\" '"},
  {"role": "assistant", "content": null, "reasoning_content": "think\n",
   "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1.5, "b": [true, "x"]}}}]},
  {"role": "tool", "content": "42", "name": "f"},
  {"role": "assistant", "content": "It is 42.</think>"}
])");
const Json kTools = Json::parse(R"([{"type": "function", "function": {"name": "f",
  "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}])");

// Any template gives text with spans inside it, or is rejected with one line.
void check_message(std::string_view message) {
  if (message.find('\n') != message.npos || message.size() > 700 || !message.starts_with("chat "))
    std::abort();
}

void check_spans(const mgpu::text::Rendered& rendered) {
  for (const auto& [begin, end] : rendered.assistant)
    if (begin > end || end > rendered.text.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string source(reinterpret_cast<const char*>(bytes), size);
  try {
    const ChatTemplate chat(source, {.bos = "<s>", .eos = "</s>"},
                            {.work = 100'000, .output = 200'000});
    check_spans(chat.render(kMessages, kTools, true, {{"enable_thinking", false}}));
    check_spans(chat.render_with_assistant(kMessages, {}));
  } catch (const std::runtime_error& error) {
    check_message(error.what());
  }
  return 0;
}
