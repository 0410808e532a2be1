#include "runtime/data/conversation.hpp"

#include <utility>

#include <fmt/format.h>

#include "runtime/data/row_mapping.hpp"

namespace mgpu::data {

namespace {

bool absent(const Json& row, const std::string& column) {
  const auto found = row.find(column);
  return found == row.end() || found->is_null();
}

std::string optional_text(const Json& row, const std::string& column) {
  return absent(row, column) ? std::string() : text_of(row, column);
}

void rename(Json& message, const std::string& from, const std::string& to) {
  const auto found = message.find(from);
  if (found == message.end()) return;
  if (message.contains(to))
    throw RowError(fmt::format("a message has both \"{}\" and \"{}\"", from, to));
  Json value = std::move(*found);
  message.erase(from);
  message[to] = std::move(value);
}

Json message(const std::string& role, const std::string& content) {
  return Json{{"role", role}, {"content", content}};
}

// Most chat templates leave out parts that they do not know, without an error.
void check_parts(const Json& message, std::size_t number, const std::string& column) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return;
  for (const Json& part : *content) {
    if (!part.is_object()) continue;
    const auto type = part.find("type");
    const bool typed = type != part.end() && type->is_string();
    if (typed ? *type == "text" : part.contains("text")) continue;
    const std::string kind = typed ? type->get<std::string>() : column_names(part);
    throw RowError(fmt::format("message {} of \"{}\" has a part of type \"{}\"; {}", number,
                               printable(column), printable(kind),
                               kind.find("image") != std::string::npos
                                   ? "images are not supported"
                                   : "only parts of type text are supported"));
  }
}

struct AlpacaRow {
  std::string system_text, user_text;
  std::vector<std::pair<std::string, std::string>> history;
};

AlpacaRow alpaca_of(const Json& row) {
  AlpacaRow out{.system_text = optional_text(row, "system"),
                .user_text = text_of(row, "instruction")};
  if (const std::string input = optional_text(row, "input"); !input.empty())
    out.user_text += "\n" + input;
  if (absent(row, "history")) return out;
  const Json& history = row["history"];
  if (!history.is_array()) throw RowError("the column \"history\" must be a list");
  for (const Json& turn : history) {
    if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string())
      throw RowError("the column \"history\" must be a list of [question, answer] pairs");
    out.history.emplace_back(turn[0].get<std::string>(), turn[1].get<std::string>());
  }
  return out;
}

}  // namespace

const std::string& text_of(const Json& row, const std::string& column) {
  const auto found = row.find(column);
  if (found == row.end())
    throw RowError(fmt::format("the column \"{}\" is missing; the row has {}", printable(column),
                               column_names(row)));
  if (!found->is_string())
    throw RowError(fmt::format("the column \"{}\" must be a string, not {}", printable(column),
                               found->is_null() ? "null" : found->type_name()));
  return found->get_ref<const std::string&>();
}

Json messages_of(const Json& row, const std::string& column) {
  const auto found = row.find(column);
  if (found == row.end())
    throw RowError(fmt::format("the column \"{}\" is missing; the row has {}", printable(column),
                               column_names(row)));
  if (!found->is_array() || found->empty())
    throw RowError(
        fmt::format("the column \"{}\" must be a non-empty list of messages", printable(column)));
  Json messages = *found;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Json& each = messages[i];
    if (each.is_object()) {
      rename(each, "from", "role");
      rename(each, "value", "content");
    }
    if (!each.is_object() || !each.contains("role") || !each["role"].is_string())
      throw RowError(fmt::format("message {} of \"{}\" has no role", i + 1, printable(column)));
    check_parts(each, i + 1, column);
  }
  return messages;
}

Json sharegpt_messages(const Json& row, bool map_roles) {
  Json messages = messages_of(row, "conversations");
  if (map_roles)
    for (Json& each : messages) {
      Json& role = each["role"];
      if (role == "human") role = "user";
      if (role == "gpt") role = "assistant";
    }
  const std::string system_text = optional_text(row, "system");
  if (!system_text.empty()) messages.insert(messages.begin(), message("system", system_text));
  return messages;
}

Turns alpaca_turns(const Json& row) {
  const AlpacaRow alpaca = alpaca_of(row);
  Turns turns;
  if (!alpaca.system_text.empty()) turns.prompt.push_back(message("system", alpaca.system_text));
  for (const auto& [question, answer] : alpaca.history) {
    turns.prompt.push_back(message("user", question));
    turns.prompt.push_back(message("assistant", answer));
  }
  turns.prompt.push_back(message("user", alpaca.user_text));
  turns.completion.push_back(message("assistant", text_of(row, "output")));
  return turns;
}

std::string alpaca_prompt(const Json& row) {
  const AlpacaRow alpaca = alpaca_of(row);
  const std::string input = optional_text(row, "input");
  std::string out = alpaca.system_text;
  if (out.empty())
    out = input.empty() ? "Below is an instruction that describes a task. Write a response that "
                          "appropriately completes the request."
                        : "Below is an instruction that describes a task, paired with an input "
                          "that provides further context. Write a response that appropriately "
                          "completes the request.";
  for (const auto& [question, answer] : alpaca.history)
    out += fmt::format("\n\n### Instruction:\n{}\n\n### Response:\n{}", question, answer);
  out += "\n\n### Instruction:\n" + text_of(row, "instruction");
  if (!input.empty()) out += "\n\n### Input:\n" + input;
  return out + "\n\n### Response:\n";
}

Json tools_of(const Json& row) {
  if (absent(row, "tools")) return nullptr;
  const Json& tools = row["tools"];
  if (tools.is_array()) return tools;
  if (!tools.is_string()) throw RowError("the column \"tools\" must be a list or a string");
  // parse_row accepts objects only, so the list is wrapped to get the same checks.
  Json parsed;
  try {
    parsed = parse_row("{\"tools\":" + tools.get_ref<const std::string&>() + "}");
  } catch (const RowError& e) {
    throw RowError(fmt::format("the string in the column \"tools\" is invalid: {}", e.what()));
  }
  if (parsed.size() != 1 || (!parsed["tools"].is_array() && !parsed["tools"].is_null()))
    throw RowError("the string in the column \"tools\" must contain a list");
  return parsed["tools"];
}

Json template_extra_of(const Json& row) {
  if (absent(row, "chat_template_kwargs")) return Json::object();
  const Json& extra = row["chat_template_kwargs"];
  if (!extra.is_object()) throw RowError("the column \"chat_template_kwargs\" must be an object");
  return extra;
}

}  // namespace mgpu::data
