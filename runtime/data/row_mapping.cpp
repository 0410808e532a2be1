#include "runtime/data/row_mapping.hpp"

#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace mgpu::data {

namespace {

constexpr std::size_t kShownNames = 300;  // bytes

bool is_optional(std::string_view column) {
  return column == "system" || column == "input" || column == "history" || column == "tools";
}

void rename_columns(const RowMapping& mapping, Json& row) {
  Json renamed = Json::object();
  for (const auto& [ours, theirs] : mapping.columns) {
    const auto found = row.find(theirs);
    if (found != row.end()) {
      renamed[ours] = *found;
    } else if (!is_optional(ours)) {
      throw RowError(fmt::format(
          "the column \"{}\"{} is missing; the row has {}", printable(theirs),
          ours == theirs ? "" : fmt::format(", which is the {},", ours), column_names(row)));
    }
  }
  for (const auto& [ours, theirs] : mapping.columns) row.erase(theirs);
  for (auto& [name, value] : renamed.items()) row[name] = std::move(value);
}

// A message of LLaMA-Factory whose content is one call {"name", "arguments"} or a list of them.
void make_tool_calls(Json& message) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_string())
    throw RowError("a function call must be a string with JSON");
  Json calls;
  try {
    calls = parse_row("{\"calls\":" + content->get_ref<const std::string&>() + "}")["calls"];
  } catch (const RowError& e) {
    throw RowError(fmt::format("a function call is invalid: {}", e.what()));
  }
  if (calls.is_object()) calls = Json::array({calls});
  Json made = Json::array();
  for (auto& call : calls) {
    if (!call.is_object() || !call.contains("name"))
      throw RowError("a function call must be a JSON object with a name");
    made.push_back({{"type", "function"}, {"function", std::move(call)}});
  }
  message["role"] = "assistant";
  message["content"] = "";
  message["tool_calls"] = std::move(made);
}

void rename_fields(const RowMapping& mapping, Json& message) {
  Json renamed = Json::object();
  for (const auto& [ours, theirs] : mapping.message_fields)
    if (const auto found = message.find(theirs); found != message.end()) renamed[ours] = *found;
  for (const auto& [ours, theirs] : mapping.message_fields) message.erase(theirs);
  for (auto& [name, value] : renamed.items()) message[name] = std::move(value);
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return;
  const auto found = mapping.roles.find(role->get_ref<const std::string&>());
  if (found == mapping.roles.end()) return;
  *role = found->second;
  if (found->second == "function_call") make_tool_calls(message);
}

std::string text_in(const Json& row, const char* column, bool needed) {
  const auto found = row.find(column);
  if (found == row.end() || found->is_null()) {
    if (!needed) return {};
    throw RowError(fmt::format("the column \"{}\" is {}; the row has {}", column,
                               found == row.end() ? "missing" : "null", column_names(row)));
  }
  return found->is_string() ? found->get<std::string>() : found->dump();
}

std::string filled(std::string_view format,
                   std::initializer_list<std::pair<std::string_view, std::string_view>> values) {
  std::string out;
  while (!format.empty()) {
    bool replaced = false;
    for (const auto& [name, value] : values)
      if (format.starts_with(name)) {
        out += value;
        format.remove_prefix(name.size());
        replaced = true;
        break;
      }
    if (replaced) continue;
    out += format.front();
    format.remove_prefix(1);
  }
  return out;
}

void make_prompt(const RowMapping& mapping, Json& row) {
  const std::string instruction = text_in(row, "instruction", true);
  const std::string input = text_in(row, "input", false);
  std::string system = text_in(row, "system", false);
  if (system.empty()) system = mapping.system_text;
  const auto& format = input.empty() ? mapping.no_input_format : mapping.prompt_format;
  row["prompt"] = (system.empty() ? "" : filled(mapping.system_format, {{"{system}", system}})) +
                  filled(format, {{"{instruction}", instruction}, {"{input}", input}});
  row["completion"] = text_in(row, "output", true);
}

}  // namespace

bool RowMapping::is_empty() const {
  return *this == RowMapping{};
}

std::string RowMapping::key() const {
  return Json{columns,         message_fields, roles,      prompt_format,
              no_input_format, system_format,  system_text}
      .dump(-1, ' ', true, Json::error_handler_t::replace);
}

Json mapped_row(const RowMapping& mapping, Json row) {
  if (mapping.is_empty()) return row;
  if (!mapping.columns.empty()) rename_columns(mapping, row);
  if (!mapping.message_fields.empty() || !mapping.roles.empty())
    for (const char* column : {"messages", "conversations", "prompt", "completion"})
      if (const auto list = row.find(column); list != row.end() && list->is_array())
        for (Json& message : *list)
          if (message.is_object()) rename_fields(mapping, message);
  if (mapping.makes_prompts()) {
    make_prompt(mapping, row);
  } else if (const auto system = row.find("system");
             !mapping.system_text.empty() &&
             (system == row.end() || system->is_null() || *system == "")) {
    row["system"] = mapping.system_text;
  }
  return row;
}

std::string column_names(const Json& row) {
  std::string names;
  for (const auto& [name, value] : row.items())
    if (names.size() < kShownNames) names += (names.empty() ? "" : ", ") + printable(name, 40);
  return names.empty() ? "no columns" : names;
}

}  // namespace mgpu::data
