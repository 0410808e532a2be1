#include "runtime/config/launch_command.hpp"

#include <stdexcept>

#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/reading/yaml_read.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

// As a shell reads it as one word.
std::string shell_word(const std::string& text) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == text.npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::optional<std::int64_t> ranks_in(const YamlNode& map) {
  for (std::size_t i = 0; map.is_map() && i + 1 < map.items.size(); i += 2) {
    const auto* key = find_key(map.items[i].text);
    if (!key) continue;
    const auto& value = map.items[i + 1];
    if (key->name == "launch")
      if (const auto ranks = ranks_in(value)) return ranks;
    if (key->name != "nproc" || is_null(value)) continue;
    try {
      return to_whole(value);
    } catch (const std::runtime_error&) {  // "auto", which only the launcher can count
    }
  }
  return {};
}

}  // namespace

std::string launch_command(const RunCommand& command, std::int64_t ranks) {
  auto line = "mgpu-run --nproc " + std::to_string(ranks);
  if (!command.recipe.path.empty()) line += " " + shell_word(command.recipe.path);
  for (const auto& assignment : command.recipe.set) line += " --set " + shell_word(assignment);
  if (command.recipe.allow_unknown) line += " --allow-unknown";
  return line;
}

bool has_launch_section(const RecipeArguments& recipe) {
  if (recipe.path.empty()) return false;
  const auto map = read_yaml(recipe.path);
  for (std::size_t i = 0; map.is_map() && i + 1 < map.items.size(); i += 2)
    if (const auto* key = find_key(map.items[i].text); key && key->name == "launch") return true;
  return false;
}

std::optional<std::int64_t> ranks_of_recipe(const RecipeArguments& recipe) {
  if (recipe.path.empty()) return {};
  return ranks_in(read_yaml(recipe.path));
}

}  // namespace mgpu::train
