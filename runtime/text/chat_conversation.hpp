#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/text/chat_template.hpp"
#include "runtime/text/jinja/eval.hpp"

namespace mgpu::text {

// A conversation as values of the template language. Converted once and used for all its
// renderings.
struct ChatTemplate::Conversation {
  Conversation(const Json& messages, const Json& tools, const Json& extra, const Tokens& tokens,
               const jinja::Limits& limits);

  std::vector<jinja::Value> messages;
  jinja::Value tools;
  std::vector<std::pair<std::string, jinja::Value>> variables;

 private:
  void set(const std::string& name, jinja::Value value);
};

}  // namespace mgpu::text
