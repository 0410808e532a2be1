#include "runtime/config/keys/reference_page.hpp"

#include <vector>

#include <fmt/format.h>

#include "runtime/config/keys/key_table.hpp"

namespace mgpu::train {
namespace {

std::string escaped(const std::string& text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c;
  }
  return cell;
}

std::string names(const KeySpec& key) {
  auto text = fmt::format("`{}`", key.name);
  for (const auto& alias : key.aliases) text += fmt::format(", `{}`", alias);
  return text;
}

std::string value_of(const KeySpec& key) {
  const auto& value = key.field.value.empty() ? key.value : key.field.value;
  return value.empty() ? "" : fmt::format("`{}`", value);
}

std::string used_row(const KeySpec& key) {
  auto help = key.help;
  if (!key.sets.empty()) help += fmt::format("; see `{}`", key.sets);
  return fmt::format("| {} | {} | {} | {} |\n", names(key), escaped(value_of(key)),
                     escaped(default_text(key)), escaped(help));
}

std::string other_row(const KeySpec& key) {
  return fmt::format("| {} | {} |\n", names(key), escaped(key.instead));
}

std::string other_table(const char* heading, KeyUse use) {
  auto text = fmt::format("| key | {} |\n| --- | --- |\n", heading);
  for (const auto& key : config_keys())
    if (key.use == use) text += other_row(key);
  return text;
}

}  // namespace

std::string keys_markdown() {
  std::string text;
  auto group = KeyGroup::other_trainers;
  for (const auto& key : config_keys()) {
    if (key.use != KeyUse::used) continue;
    if (key.group != group)
      text +=
          fmt::format("\n## {}\n\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n",
                      title(key.group));
    group = key.group;
    text += used_row(key);
  }
  text += fmt::format("\n## {}\n\n{}", title(KeyGroup::launcher),
                      other_table("what to use", KeyUse::launcher));
  text += "\n## Accepted without effect\n\n" + other_table("what happens instead", KeyUse::ignored);
  text +=
      "\n## Refused\n\nValues that switch the feature off, such as `false`, `null` or `none`, are "
      "accepted.\n\n" +
      other_table("what to do", KeyUse::refused);
  return text;
}

}  // namespace mgpu::train
