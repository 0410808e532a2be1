#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mgpu::text {

// The source of the chat template that other trainers call by this name, such as chatml or qwen3;
// empty if no template has the name.
std::string named_chat_template(std::string_view name);

// One name of each template.
std::vector<std::string> chat_template_names();

// The template with a system message for conversations that have none.
std::string with_default_system(const std::string& source, const std::string& text);

}  // namespace mgpu::text
