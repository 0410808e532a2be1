// Chat templates by the names that axolotl and LLaMA-Factory give them. Each renders a conversation
// as the models that the name stands for expect it. transformers can render them too, because they
// are saved with the trained model.

#include "runtime/text/named_templates.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace mgpu::text {
namespace {

// The text of a message, whose content may be a list of parts.
constexpr const char* kText = R"({%- macro text_of(message) -%}
{%- if message.content is string -%}
{{- message.content -}}
{%- elif message.content -%}
{%- for part in message.content if part.text is defined -%}{{- part.text -}}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
)";

constexpr const char* kChatMl = R"({%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' + text_of(message) + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)";

constexpr const char* kZephyr = R"({%- for message in messages -%}
{{- '<|' + message.role + '|>\n' + text_of(message) + eos_token + '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\n' -}}{%- endif -%}
)";

// Llama 3, without tools.
constexpr const char* kLlama3 = R"({{- bos_token -}}
{%- for message in messages -%}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' -}}
{{- text_of(message) | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
)";

// Llama 2 and Mistral: after an optional system message the roles alternate.
constexpr const char* kTurns = R"({%- set with_system = messages[0].role == 'system' -%}
{%- set system = text_of(messages[0]) if with_system else '' -%}
{%- set turns = messages[1:] if with_system else messages -%}
{%- for turn in turns -%}
{%- if turn.role != ('user' if loop.index0 % 2 == 0 else 'assistant') -%}
{{- raise_exception('the roles must be user and assistant in turn, after at most one system') -}}
{%- endif -%}
{%- endfor -%}
)";

constexpr const char* kLlama2 = R"({%- for turn in turns -%}
{%- if turn.role == 'user' -%}
{%- set start = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' if loop.first and with_system else '' -%}
{{- bos_token + '[INST] ' + (start + text_of(turn)) | trim + ' [/INST]' -}}
{%- else -%}
{{- ' ' + text_of(turn) | trim + ' ' + eos_token -}}
{%- endif -%}
{%- endfor -%}
)";

// The system message is in the first turn of the user.
constexpr const char* kMistral1 = R"({{- bos_token -}}
{%- for turn in turns -%}
{%- if turn.role == 'user' -%}
{{- ' [INST] ' + (system + '\n\n' if loop.first and with_system else '') -}}
{{- text_of(turn) + ' [/INST]' -}}
{%- else -%}
{{- ' ' + text_of(turn) + eos_token -}}
{%- endif -%}
{%- endfor -%}
)";

// The system message is in the last turn of the user. So earlier turns change when others follow,
// and the answers have to be marked.
constexpr const char* kMistral3 = R"({{- bos_token -}}
{%- set last = (turns | length - 1) // 2 * 2 -%}
{%- for turn in turns -%}
{%- if turn.role == 'user' -%}
{{- '[INST] ' + (system + '\n\n' if loop.index0 == last and with_system else '') -}}
{{- text_of(turn) + '[/INST]' -}}
{%- else -%}
{%- generation -%}{{- ' ' + text_of(turn) | trim + eos_token -}}{%- endgeneration -%}
{%- endif -%}
{%- endfor -%}
)";

// The same without spaces.
constexpr const char* kMistralTekken = R"({{- bos_token -}}
{%- set last = (turns | length - 1) // 2 * 2 -%}
{%- for turn in turns -%}
{%- if turn.role == 'user' -%}
{{- '[INST]' + (system + '\n\n' if loop.index0 == last and with_system else '') -}}
{{- text_of(turn) + '[/INST]' -}}
{%- else -%}
{%- generation -%}{{- text_of(turn) + eos_token -}}{%- endgeneration -%}
{%- endif -%}
{%- endfor -%}
)";

constexpr const char* kMistral7 = R"({{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{- '[SYSTEM_PROMPT]' + text_of(message) + '[/SYSTEM_PROMPT]' -}}
{%- elif message.role == 'user' -%}
{{- '[INST]' + text_of(message) + '[/INST]' -}}
{%- else -%}
{{- text_of(message) + eos_token -}}
{%- endif -%}
{%- endfor -%}
)";

// Qwen: the system message with the tools, and how a tool is called.
constexpr const char* kQwenSystem = R"({%- set own = messages[0].role == 'system' -%}
{%- set system = text_of(messages[0]) if own else default_system -%}
{%- set with_system = own or default_system != '' -%}
{%- if tools -%}
{{- '<|im_start|>system\n' + (system + '\n\n' if with_system else '') -}}
{{- '# Tools\n\nYou may call one or more functions to assist with the user query.\n\n' -}}
{{- 'You are provided with function signatures within <tools></tools> XML tags:\n<tools>' -}}
{%- for tool in tools -%}{{- '\n' -}}{{- tool | tojson -}}{%- endfor -%}
{{- '\n</tools>\n\nFor each function call, return a json object with function name and ' -}}
{{- 'arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n' -}}
{{- '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n' -}}
{%- elif with_system -%}
{{- '<|im_start|>system\n' + system + '<|im_end|>\n' -}}
{%- endif -%}
{%- macro text_of_call(call) -%}
{%- set called = call.function if call.function else call -%}
{{- '<tool_call>\n{"name": "' + called.name + '", "arguments": ' -}}
{%- if called.arguments is string -%}
{{- called.arguments -}}
{%- else -%}
{{- called.arguments | tojson -}}
{%- endif -%}
{{- '}\n</tool_call>' -}}
{%- endmacro -%}
)";

// Qwen3: which message is the last question of the user. Answers of tools are not questions.
constexpr const char* kQwen3Question =
    R"({%- set question = namespace(index=messages | length - 1) -%}
{%- for message in messages -%}
{%- set text = text_of(message) -%}
{%- if message.role == 'user'
    and not (text.startswith('<tool_response>') and text.endswith('</tool_response>')) -%}
{%- set question.index = loop.index0 -%}
{%- endif -%}
{%- endfor -%}
)";

constexpr const char* kQwenBegin = R"({%- for message in messages -%}
{%- if message.role == 'assistant' -%}
{%- set text = text_of(message) -%}
{%- set thoughts = '' -%}
)";

// Qwen3: an answer after the last question keeps its thoughts, earlier ones do not.
constexpr const char* kQwen3Thoughts = R"({%- if message.reasoning_content is string -%}
{%- set thoughts = message.reasoning_content -%}
{%- elif '</think>' in text -%}
{%- set thoughts = text.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}
{%- set text = text.split('</think>')[-1].lstrip('\n') -%}
{%- endif -%}
{%- if loop.index0 > question.index and (loop.last or thoughts) -%}
{%- set thoughts = '<think>\n' + thoughts.strip('\n') + '\n</think>\n\n' -%}
{%- set text = text.lstrip('\n') -%}
{%- else -%}
{%- set thoughts = '' -%}
{%- endif -%}
)";

constexpr const char* kQwenEnd = R"({{- '<|im_start|>assistant\n' + thoughts + text -}}
{%- for call in message.tool_calls or [] -%}
{{- ('\n' if text or not loop.first else '') + text_of_call(call) -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- elif message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}
{{- '<|im_start|>user' -}}
{%- endif -%}
{{- '\n<tool_response>\n' + text_of(message) + '\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
{%- elif not (loop.first and message.role == 'system') -%}
{{- '<|im_start|>' + message.role + '\n' + text_of(message) + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)";

constexpr const char* kQwen3NoThoughts =
    R"({%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false -%}
{{- '<think>\n\n</think>\n\n' -}}
{%- endif -%}
)";

std::string qwen(const std::string& default_system) {
  return fmt::format("{}{{%- set default_system = {} -%}}\n{}{}{}", kText,
                     nlohmann::json(default_system).dump(), kQwenSystem, kQwenBegin, kQwenEnd);
}

std::string qwen3() {
  return fmt::format("{}{{%- set default_system = '' -%}}\n{}{}{}{}{}{}", kText, kQwenSystem,
                     kQwen3Question, kQwenBegin, kQwen3Thoughts, kQwenEnd, kQwen3NoThoughts);
}

struct Named {
  std::vector<std::string> names;
  std::string source;
};

const std::vector<Named>& all_templates() {
  const std::string text = kText;
  static const std::vector<Named> all{
      {{"chatml"}, text + kChatMl},
      {{"llama2", "llama_2"}, text + kTurns + kLlama2},
      {{"llama3", "llama_3"}, text + kLlama3},
      {{"mistral", "mistral_v2v3", "mistral_v2", "mistral_v3"}, text + kTurns + kMistral3},
      {{"mistral_v1"}, text + kTurns + kMistral1},
      {{"mistral_v3_tekken"}, text + kTurns + kMistralTekken},
      {{"mistral_v7_tekken", "mistral_small"}, text + kMistral7},
      {{"qwen2"}, qwen("You are a helpful assistant.")},
      {{"qwen", "qwen_25", "qwen25", "qwen2_5", "qwen2.5"},
       qwen("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")},
      {{"qwen3"}, qwen3()},
      {{"qwen3_nothink", "qwen3_instruct"}, qwen("")},
      {{"zephyr"}, text + kZephyr},
  };
  return all;
}

}  // namespace

std::string named_chat_template(std::string_view name) {
  for (const auto& known : all_templates())
    if (std::ranges::find(known.names, name) != known.names.end()) return known.source;
  return {};
}

std::vector<std::string> chat_template_names() {
  std::vector<std::string> names;
  for (const auto& known : all_templates()) names.push_back(known.names.front());
  return names;
}

std::string with_default_system(const std::string& source, const std::string& text) {
  return fmt::format(
      "{{%- if not messages or messages[0].role != 'system' -%}}\n"
      "{{%- set messages = [{{'role': 'system', 'content': {}}}] + messages -%}}\n"
      "{{%- endif -%}}\n{}",
      nlohmann::json(text).dump(), source);
}

}  // namespace mgpu::text
