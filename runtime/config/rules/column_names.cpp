// The keys by which axolotl, LLaMA-Factory and TRL name columns, fields of messages and roles.

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/rules/data_sources.hpp"

namespace mgpu::train {
namespace {

using Words = std::pair<std::string_view, std::string_view>;

// axolotl: a key of a dataset, and our column.
constexpr std::array kColumnKeys = {
    Words{"field_messages", "messages"},  Words{"field_system", "system"},
    Words{"field_tools", "tools"},        Words{"field_instruction", "instruction"},
    Words{"field_input", "input"},        Words{"field_output", "output"},
    Words{"field_history", "history"},    Words{"text_column", "text"},
    Words{"prompt_column", "prompt"},     Words{"completion_column", "completion"},
    Words{"messages_column", "messages"},
};

// LLaMA-Factory: a key of `tags` with the name of a role in the file, and our role.
constexpr std::array kRoleTags = {
    Words{"user_tag", "user"},
    Words{"assistant_tag", "assistant"},
    Words{"system_tag", "system"},
    Words{"observation_tag", "tool"},
    Words{"function_tag", "function_call"},
};

template <std::size_t N>
std::string_view found_in(const std::array<Words, N>& words, std::string_view key) {
  const auto found =
      std::find_if(words.begin(), words.end(), [&](const Words& w) { return w.first == key; });
  return found == words.end() ? std::string_view() : found->second;
}

template <class Use>
void for_each_entry(const std::string& key, const YamlNode& map, const Use& use) {
  if (!map.is_map()) throw std::runtime_error(fmt::format("{}: need a map", key));
  for (std::size_t i = 0; i + 1 < map.items.size(); i += 2)
    if (!is_null(map.items[i + 1])) use(map.items[i].text, map.items[i + 1]);
}

// axolotl: our role, and those of the file.
void read_roles(const YamlNode& value, ColumnNames& names) {
  for_each_entry("roles", value, [&](const std::string& ours, const YamlNode& theirs) {
    for (const auto& role : to_words(theirs)) names.roles[role] = ours;
  });
}

void read_tags(const YamlNode& value, ColumnNames& names) {
  for_each_entry("tags", value, [&](const std::string& tag, const YamlNode& name) {
    if (tag == "role_tag") {
      names.message_fields["role"] = to_text(name);
    } else if (tag == "content_tag") {
      names.message_fields["content"] = to_text(name);
    } else if (const auto role = found_in(kRoleTags, tag); !role.empty()) {
      names.roles[to_text(name)] = role;
    } else {
      throw std::runtime_error(fmt::format("tags: unknown key {}", rendezvous::shown(tag)));
    }
  });
}

}  // namespace

bool read_column_names(const std::string& key, const YamlNode& value, DataSource& source) {
  auto& names = source.names;
  if (const auto column = found_in(kColumnKeys, key); !column.empty()) {
    names.columns[std::string(column)] = to_text(value);
  } else if (key == "columns" && value.is_list()) {
    to_words(value);  // open-r1: those to keep; others are not used anyway
  } else if (key == "columns") {
    for_each_entry(key, value, [&](const std::string& ours, const YamlNode& theirs) {
      names.columns[ours] = to_text(theirs);
    });
  } else if (key == "message_property_mappings") {
    for_each_entry(key, value, [&](const std::string& ours, const YamlNode& theirs) {
      names.message_fields[ours] = to_text(theirs);
    });
  } else if (key == "message_field_role" || key == "message_field_content") {
    names.message_fields[key.substr(std::string_view("message_field_").size())] = to_text(value);
  } else if (key == "roles") {
    read_roles(value, names);
  } else if (key == "tags") {
    read_tags(value, names);
  } else if (key == "format") {
    names.prompt_format = to_text(value);
    if (names.no_input_format.empty()) names.no_input_format = names.prompt_format;
  } else if (key == "no_input_format") {
    names.no_input_format = to_text(value);
  } else if (key == "system_format") {
    names.system_format = to_text(value);
  } else if (key == "system_prompt") {
    names.system_text = to_text(value);
  } else {
    return false;
  }
  return true;
}

}  // namespace mgpu::train
